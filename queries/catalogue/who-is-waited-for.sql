-- title: Who is waited for now
-- answers: Which rank or link holds operations up at this moment, why, and how many devices stand in them.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: seconds UInt32 = 10 | what was said within so many seconds counts as now
-- worked result:
--   job  | communicator | func       | seq | reason       | holder_rank | holder_host | peer_rank | peer_host | waiting | waited_s
--   demo | dp-0         | all_reduce | 7   | not_launched | 5           | host-2      |           |           | 3       | 4.2
WITH
    -- Each partition says its complete set every second: only the last one holds.
    last AS
    (
        SELECT job, attempt, partition, max(epoch) AS epoch
        FROM nccl.waits
        WHERE ingested >= now() - toIntervalSecond({seconds:UInt32})
            AND ({job:String} = '' OR job IN (SELECT job FROM nccl.members WHERE job_name = {job:String}))
        GROUP BY job, attempt, partition
    ),
    -- What arrives twice is said once.
    said AS
    (
        SELECT DISTINCT * EXCEPT ingested
        FROM nccl.waits
        WHERE (job, attempt, partition, epoch) IN (SELECT job, attempt, partition, epoch FROM last)
            AND ingested >= now() - toIntervalSecond({seconds:UInt32})
    ),
    -- A job of which every member is silent is over, and only not forgotten yet.
    sizes AS
    (
        SELECT job, attempt, uniqExact(dev) AS members FROM nccl.members
        WHERE job IN (SELECT job FROM last)
        GROUP BY job, attempt
    ),
    over AS
    (
        SELECT said.job AS job, said.attempt AS attempt FROM said
        JOIN sizes ON sizes.job = said.job AND sizes.attempt = said.attempt
        WHERE said.waiter_kind = 'operation' AND said.reason = 'silent'
        GROUP BY said.job, said.attempt
        HAVING uniqExact(said.holder) >= any(sizes.members)
    ),
    standing AS
    (
        SELECT holder AS op, uniqExact(waiter) AS waiting, max(nullIf(waited_us, 4294967295)) AS waited_us
        FROM said
        WHERE holder_kind = 'operation'
        GROUP BY op
    ),
    places AS
    (
        SELECT dev, any(world_rank) AS rank, any(host) AS host
        FROM nccl.members
        GROUP BY dev
    ),
    communicators AS
    (
        SELECT job, comm, any(job_name) AS job_name, any(name) AS name
        FROM nccl.members
        GROUP BY job, comm
    )
SELECT
    communicators.job_name AS job,
    communicators.name AS communicator,
    said.func AS func,
    said.seq AS seq,
    said.reason AS reason,
    held.rank AS holder_rank,
    held.host AS holder_host,
    other.rank AS peer_rank,
    other.host AS peer_host,
    any(standing.waiting) AS waiting,
    round(any(standing.waited_us) / 1e6, 1) AS waited_s
FROM said
LEFT JOIN standing ON standing.op = said.waiter
LEFT JOIN communicators ON communicators.job = said.job AND communicators.comm = said.comm
LEFT JOIN places AS held ON held.dev = said.holder
LEFT JOIN places AS other ON other.dev = said.holder_peer
WHERE said.waiter_kind = 'operation' AND (said.job, said.attempt) NOT IN (SELECT job, attempt FROM over)
GROUP BY ALL
ORDER BY waiting DESC, waited_s DESC NULLS LAST, job, communicator, seq, holder_rank
SETTINGS join_use_nulls = 1
