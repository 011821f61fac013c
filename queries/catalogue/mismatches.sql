-- title: Mismatches
-- answers: Who called an operation differently from the others, and what differed.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: days UInt32 = 7 | so far back; the table keeps 7 days
-- worked result:
--   job  | communicator | seq | rank | host   | func       | its_func   | datatype | its_datatype | count | its_count | last_seen
--   demo | dp-0         | 12  | 2    | host-1 | all_reduce | all_reduce | float32  | float32      | 1024  | 512       | 2026-03-01 03:12:09
WITH
    places AS
    (
        SELECT job, comm, dev, any(job_name) AS job_name, any(name) AS name, any(world_rank) AS rank, any(host) AS host
        FROM nccl.members
        GROUP BY job, comm, dev
    )
SELECT
    places.job_name AS job,
    places.name AS communicator,
    waits.seq AS seq,
    places.rank AS rank,
    places.host AS host,
    waits.func AS func,
    waits.holder_func AS its_func,
    waits.datatype AS datatype,
    waits.holder_datatype AS its_datatype,
    waits.count AS count,
    waits.holder_count AS its_count,
    max(waits.ingested) AS last_seen
FROM nccl.waits AS waits
LEFT JOIN places ON places.job = waits.job AND places.comm = waits.comm AND places.dev = waits.holder
WHERE waits.reason = 'mismatch'
    AND waits.ingested >= now() - toIntervalDay({days:UInt32})
    AND ({job:String} = '' OR waits.job IN (SELECT job FROM nccl.members WHERE job_name = {job:String}))
GROUP BY ALL
ORDER BY last_seen DESC, job, communicator, seq, rank
SETTINGS join_use_nulls = 1
