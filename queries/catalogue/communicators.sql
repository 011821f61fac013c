-- title: Communicators and their bandwidth
-- answers: How much each communicator moves and how fast, by operation, algorithm and protocol.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: hours UInt32 = 24 | so far back; the table keeps 7 days
-- worked result:
--   job  | communicator | nranks | nnodes | func       | algo | proto  | operations | gigabytes | mean_ms | worst_ms | bus_gb_per_s
--   demo | dp-0         | 4      | 2      | all_reduce | ring | simple | 100        | 0.1       | 2.0     | 9.0      | 0.75
WITH
    -- nccl-tests' factors from payload over time to what each link carries.
    multiIf(
        func = 'all_reduce', 2 * (nranks - 1) / nranks,
        func IN ('all_gather', 'reduce_scatter', 'all_to_all'), (nranks - 1) / nranks,
        1) AS factor,
    names AS
    (
        SELECT job, comm, any(job_name) AS job_name, any(name) AS name
        FROM nccl.members
        GROUP BY job, comm
    ),
    summed AS
    (
        -- Sums hold every finished operation once, on each device; those with no known end say no duration.
        SELECT
            job, comm, func, algo, proto, max(nranks) AS nranks, max(nnodes) AS nnodes,
            sum(n) / uniqExact(dev) AS operations,
            sum(bytes) / uniqExact(dev) AS payload,
            sumIf(bytes, duration_max_us != 4294967295) AS timed_bytes,
            sumIf(n, duration_max_us != 4294967295) AS timed,
            sum(duration_sum_us) AS duration_us,
            maxIf(duration_max_us, duration_max_us != 4294967295) AS worst_us
        FROM nccl.coll
        WHERE kind = 'sum' AND ingested >= now() - toIntervalHour({hours:UInt32})
            AND ({job:String} = '' OR job IN (SELECT job FROM nccl.members WHERE job_name = {job:String}))
        GROUP BY job, comm, func, algo, proto
    )
SELECT
    names.job_name AS job,
    names.name AS communicator,
    nranks,
    nnodes,
    func,
    algo,
    proto,
    round(operations) AS operations,
    round(payload / 1e9, 6) AS gigabytes,
    if(timed > 0, round(duration_us / timed / 1e3, 3), NULL) AS mean_ms,
    if(timed > 0, round(worst_us / 1e3, 3), NULL) AS worst_ms,
    if(duration_us > 0, round(factor * timed_bytes / duration_us / 1e3, 3), NULL) AS bus_gb_per_s
FROM summed
LEFT JOIN names ON names.job = summed.job AND names.comm = summed.comm
ORDER BY gigabytes DESC, job, communicator, func, algo, proto
LIMIT 200
SETTINGS join_use_nulls = 1
