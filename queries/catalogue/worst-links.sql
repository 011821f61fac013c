-- title: Worst links
-- answers: Between which hosts data waited longest in the network, for each gigabyte that went over, and how often it stalled there.
-- parameter: job String = '' | only of this job; empty for all
-- parameter: days UInt32 = 7 | so far back; the tables keep 7 days
-- worked result:
--   sender | receiver | gigabytes | network_s | network_s_per_gigabyte | stalls
--   host-1 | host-2   | 12.5      | 250.0     | 20.0                   | 1
WITH
    seats AS
    (
        SELECT attempt, comm, rank, any(host) AS host
        FROM nccl.members
        WHERE {job:String} = '' OR job_name = {job:String}
        GROUP BY attempt, comm, rank
    ),
    moved AS
    (
        -- Sums hold every finished flow once, whatever else was sent of it.
        SELECT attempt, comm, rank AS sender, peer AS receiver, sum(bytes) AS total_bytes, sum(net_us) AS waited_us, 0 AS stalls
        FROM nccl.flows
        WHERE kind = 'sum' AND direction = 'send' AND ingested >= now() - toIntervalDay({days:UInt32})
        GROUP BY attempt, comm, sender, receiver
    ),
    stalled AS
    (
        SELECT attempt, comm, toUInt32(holder_rank) AS sender, holder_peer_rank AS receiver, 0 AS total_bytes, 0 AS waited_us,
            uniqExact(seq, func) AS stalls
        FROM nccl.waits
        WHERE reason = 'not_delivered' AND holder_kind = 'link' AND ingested >= now() - toIntervalDay({days:UInt32})
        GROUP BY attempt, comm, sender, receiver
    )
SELECT
    here.host AS sender,
    there.host AS receiver,
    round(sum(total_bytes) / 1e9, 3) AS gigabytes,
    round(sum(waited_us) / 1e6, 3) AS network_s,
    if(gigabytes > 0, round(network_s / gigabytes, 3), NULL) AS network_s_per_gigabyte,
    sum(both.stalls) AS stalls
FROM (SELECT * FROM moved UNION ALL SELECT * FROM stalled) AS both
INNER JOIN seats AS here ON here.attempt = both.attempt AND here.comm = both.comm AND here.rank = both.sender
INNER JOIN seats AS there ON there.attempt = both.attempt AND there.comm = both.comm AND there.rank = toUInt32(both.receiver)
GROUP BY sender, receiver
ORDER BY stalls DESC, network_s_per_gigabyte DESC NULLS LAST, sender, receiver
LIMIT 50
