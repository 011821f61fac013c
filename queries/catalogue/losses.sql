-- title: Losses
-- answers: What never reached the store, from whom and how much: where an answer may rest on less than was sent.
-- parameter: hours UInt32 = 24 | so far back
-- worked result:
--   source | topic      | what         | missing | times | last_seen
--   host-3 | nccl.trace | sequence-gap | 5       | 2     | 2026-03-01 03:12:09.000
WITH
    -- Each partition tells all records that a source has dropped; messages are missing in one partition each.
    of_partition AS
    (
        SELECT source, topic, what, partition, sum(missing) AS missing, count() AS times, max(seen) AS last_seen
        FROM nccl.losses
        WHERE seen >= now() - toIntervalHour({hours:UInt32})
        GROUP BY source, topic, what, partition
    )
SELECT
    source,
    topic,
    what,
    if(what = 'drops', max(of_partition.missing), sum(of_partition.missing)) AS missing,
    if(what = 'drops', max(of_partition.times), sum(of_partition.times)) AS times,
    max(of_partition.last_seen) AS last_seen
FROM of_partition
GROUP BY source, topic, what
ORDER BY last_seen DESC, source, topic, what
