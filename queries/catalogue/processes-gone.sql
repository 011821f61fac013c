-- title: Processes that died or stopped
-- answers: Which processes of a job no longer run: gone, zombie, or stopped by a signal or a debugger.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: hours UInt32 = 24 | so far back
-- worked result:
--   job  | rank | host   | pid   | what    | sampled             | was_in_call | cpu_s
--   demo | 3    | host-1 | 16151 | stopped | 2026-03-01 03:12:09 | all_reduce  | 81.5
WITH
    last AS
    (
        SELECT
            job, proc,
            argMax(dev, procs.sampled) AS dev,
            argMax(pid, procs.sampled) AS pid,
            argMax(alive, procs.sampled) AS alive,
            char(argMax(state, procs.sampled)) AS state,
            argMax(api_func, procs.sampled) AS api_func,
            max(cpu_us) AS cpu_us,
            max(procs.sampled) AS sampled
        FROM nccl.procs AS procs
        WHERE ingested >= now() - toIntervalHour({hours:UInt32})
            AND ({job:String} = '' OR job IN (SELECT job FROM nccl.members WHERE job_name = {job:String}))
        GROUP BY job, proc
    ),
    places AS
    (
        SELECT dev, any(job_name) AS job_name, any(world_rank) AS rank, any(host) AS host
        FROM nccl.members
        GROUP BY dev
    )
SELECT
    places.job_name AS job,
    places.rank AS rank,
    places.host AS host,
    last.pid AS pid,
    multiIf(NOT last.alive, 'gone', last.state = 'Z', 'zombie', 'stopped') AS what,
    toDateTime(last.sampled) AS sampled,
    if(last.api_func = 'any', '', toString(last.api_func)) AS was_in_call,
    round(last.cpu_us / 1e6, 1) AS cpu_s
FROM last
LEFT JOIN places ON places.dev = last.dev
WHERE NOT last.alive OR last.state IN ('T', 't', 'Z', 'X')
ORDER BY sampled DESC, job, rank
SETTINGS join_use_nulls = 1
