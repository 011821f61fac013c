-- title: What is in flight now
-- answers: Operations that have been launched and have not ended, the oldest first, with the rank that stands in each.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: seconds UInt32 = 10 | what was said within so many seconds counts as now
-- worked result:
--   job  | communicator | rank | host   | func       | seq | bytes   | age_s | quiet_s | standing
--   demo | dp-0         | 4    | host-2 | all_reduce | 15  | 1048576 | 4.2   | 3.9     | yes
WITH
    told AS
    (
        SELECT
            job, comm, dev, func, seq,
            argMax(kind, (ingested, age_us)) AS last_kind,
            argMax(bytes, (ingested, age_us)) AS last_bytes,
            argMax(current, (ingested, age_us)) AS last_current,
            argMax(age_us, (ingested, age_us)) AS last_age_us,
            argMax(quiet_us, (ingested, age_us)) AS last_quiet_us
        FROM nccl.coll
        WHERE kind IN ('state', 'done', 'orphan')
            AND ingested >= now() - toIntervalSecond({seconds:UInt32})
            AND ({job:String} = '' OR job IN (SELECT job FROM nccl.members WHERE job_name = {job:String}))
        GROUP BY job, comm, dev, func, seq
        -- An end may be told in the same second as a state.
        HAVING countIf(kind != 'state') = 0
    ),
    places AS
    (
        SELECT comm, dev, any(job_name) AS job_name, any(name) AS name, any(world_rank) AS rank, any(host) AS host
        FROM nccl.members
        GROUP BY comm, dev
    )
SELECT
    places.job_name AS job,
    places.name AS communicator,
    places.rank AS rank,
    places.host AS host,
    func,
    seq,
    last_bytes AS bytes,
    round(nullIf(last_age_us, 4294967295) / 1e6, 1) AS age_s,
    round(nullIf(last_quiet_us, 4294967295) / 1e6, 1) AS quiet_s,
    transform(last_current, [1, 2], ['yes', 'maybe'], 'no') AS standing
FROM told
LEFT JOIN places ON places.comm = told.comm AND places.dev = told.dev
ORDER BY age_s DESC NULLS LAST, job, communicator, rank, seq
LIMIT 1000
SETTINGS join_use_nulls = 1
