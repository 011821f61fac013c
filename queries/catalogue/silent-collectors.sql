-- title: Collectors that fell silent
-- answers: Hosts whose collector said that processes live there and has said nothing since: nothing of them can be judged.
-- parameter: seconds UInt32 = 15 | silent for longer than this; a collector speaks every second
-- parameter: hours UInt32 = 24 | heard of within so many hours
-- worked result:
--   host   | silent_s | processes | jobs     | last_heard
--   host-3 | 42       | 2         | ['demo'] | 2026-03-01 03:12:09
WITH
    places AS
    (
        SELECT dev, any(host) AS host, any(job_name) AS job_name
        FROM nccl.members
        GROUP BY dev
    ),
    last AS
    (
        SELECT proc, argMax(dev, sampled) AS dev, argMax(alive, sampled) AS alive, max(procs.ingested) AS heard
        FROM nccl.procs AS procs
        WHERE procs.ingested >= now() - toIntervalHour({hours:UInt32})
        GROUP BY proc
    )
SELECT
    places.host AS host,
    dateDiff('second', max(last.heard), now()) AS silent_s,
    countIf(last.alive = 1) AS processes,
    arraySort(groupUniqArrayIf(places.job_name, last.alive = 1)) AS jobs,
    max(last.heard) AS last_heard
FROM last
INNER JOIN places ON places.dev = last.dev
WHERE places.host IS NOT NULL
GROUP BY host
HAVING processes > 0 AND last_heard < now() - toIntervalSecond({seconds:UInt32})
ORDER BY silent_s DESC, host
