CREATE TABLE IF NOT EXISTS nccl.rates
(
    job               UInt64 COMMENT 'hash of the job''s name',
    attempt           UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm              UInt64 COMMENT 'communicator',
    nranks            UInt32 COMMENT 'members of the communicator',
    nnodes            UInt32 COMMENT 'hosts of the communicator, 0 where unknown',
    func              Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation',
    algo              Enum8('unknown' = 0, 'tree' = 1, 'ring' = 2, 'collnet_direct' = 3, 'collnet_chain' = 4, 'nvls' = 5, 'nvls_tree' = 6, 'pat' = 7, 'other' = 127) COMMENT 'algorithm',
    proto             Enum8('unknown' = 0, 'll' = 1, 'll128' = 2, 'simple' = 3, 'other' = 127) COMMENT 'protocol',
    size_class        UInt8 COMMENT 'c where 2^(c-1) < payload of each operation <= 2^c',
    start             DateTime64(9, 'UTC') COMMENT 'begin of the window, broker time',
    length_us         UInt32 COMMENT 'length of the window',
    partition         UInt32 COMMENT 'trace partition that counted it',
    ranks             UInt32 COMMENT 'members that ended operations in the window',
    n                 UInt32 COMMENT 'operations: of the member that ended most',
    bytes             UInt64 COMMENT 'payload of one of them, on average',
    busbw             UInt64 COMMENT 'bus bandwidth, bytes a second, as nccl-tests define it; 0 where no end is known',
    transfer_us       UInt32 COMMENT 'mean duration on the member where it is shortest: it waited for nobody',
    duration_p50_us   UInt32 COMMENT 'launch to end: middle of the members'' medians',
    duration_p90_us   UInt32 COMMENT 'middle of the members'' 90th percentiles',
    duration_p99_us   UInt32 COMMENT 'largest of the members'' 99th percentiles',
    duration_max_us   UInt32 COMMENT 'the longest',
    interval_sum_us   UInt64 COMMENT 'launch to launch, of all members, each on its host''s clock',
    interval_n        UInt64 COMMENT 'of how many operations',
    interval_p50_us   UInt32 COMMENT 'middle of the members'' mean intervals',
    interval_p90_us   UInt32 COMMENT 'their 90th percentile',
    joined            UInt32 COMMENT 'operations that all members have told one by one; what follows is of these',
    start_skew_p50_us UInt32 COMMENT 'first to last launch, offsets of clocks removed: the median',
    start_skew_max_us UInt32 COMMENT 'the largest',
    end_skew_p50_us   UInt32 COMMENT 'first to last end, the same way: the median',
    end_skew_max_us   UInt32 COMMENT 'the largest',
    last              UInt64 COMMENT 'the device that was most often the last to start, 0 where unknown',
    last_n            UInt32 COMMENT 'in how many',
    silent            UInt32 COMMENT 'hosts that had not told their part in time',
    late              UInt32 COMMENT 'records of this window''s communicators that came after it was closed, so far',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, comm, func, size_class, start)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- A second each becomes a minute each, kept longer. Means of the minute are sums divided by windows or operations.
CREATE TABLE IF NOT EXISTS nccl.rate_minutes
(
    job             UInt64,
    attempt         UInt64,
    comm            UInt64,
    func            LowCardinality(String),
    size_class      UInt8,
    algo            LowCardinality(String),
    proto           LowCardinality(String),
    minute          DateTime('UTC') COMMENT 'broker time',
    windows         SimpleAggregateFunction(sum, UInt64) COMMENT 'windows with operations',
    n               SimpleAggregateFunction(sum, UInt64) COMMENT 'operations',
    bytes           SimpleAggregateFunction(sum, UInt64) COMMENT 'payload of all of them, of one member',
    timed           SimpleAggregateFunction(sum, UInt64) COMMENT 'windows in which an end is known',
    busbw_sum       SimpleAggregateFunction(sum, UInt64) COMMENT 'bus bandwidths of these windows, bytes a second',
    transfer_sum_us SimpleAggregateFunction(sum, UInt64) COMMENT 'mean durations where they are shortest, of these windows',
    duration_max_us SimpleAggregateFunction(max, UInt32),
    interval_sum_us SimpleAggregateFunction(sum, UInt64) COMMENT 'launch to launch, of all members',
    interval_n      SimpleAggregateFunction(sum, UInt64) COMMENT 'of how many operations',
    late            SimpleAggregateFunction(max, UInt64) COMMENT 'records that came after their window was closed, so far',
    ingested        SimpleAggregateFunction(max, DateTime) COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(ingested)
ORDER BY (job, comm, func, size_class, algo, proto, minute, attempt)
TTL ingested + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS nccl.rate_minutes_of_rates TO nccl.rate_minutes AS
SELECT
    job, attempt, comm, toString(rates.func) AS func, size_class,
    toString(rates.algo) AS algo, toString(rates.proto) AS proto,
    toStartOfMinute(toDateTime(start, 'UTC')) AS minute,
    count() AS windows, sum(toUInt64(rates.n)) AS n, sum(rates.n * rates.bytes) AS bytes,
    countIf(busbw > 0) AS timed, sum(busbw) AS busbw_sum,
    sumIf(toUInt64(transfer_us), busbw > 0) AS transfer_sum_us,
    max(if(rates.duration_max_us = 4294967295, 0, rates.duration_max_us)) AS duration_max_us,
    sum(rates.interval_sum_us) AS interval_sum_us, sum(rates.interval_n) AS interval_n,
    max(toUInt64(rates.late)) AS late, max(rates.ingested) AS ingested
FROM nccl.rates AS rates
GROUP BY job, attempt, comm, func, size_class, algo, proto, minute;

-- Where the time of each device's flows goes, by peer: the sums of hosts.
CREATE TABLE IF NOT EXISTS nccl.flow_minutes
(
    job       UInt64,
    attempt   UInt64,
    comm      UInt64,
    dev       UInt64,
    rank      UInt32,
    peer      Int32 COMMENT 'rank at the other end',
    direction LowCardinality(String),
    channel   Int16 COMMENT '-1 for all that do not differ from their siblings',
    minute    DateTime('UTC') COMMENT 'when the store took it, about 6 s after it happened',
    n         SimpleAggregateFunction(sum, UInt64) COMMENT 'operations',
    steps     SimpleAggregateFunction(sum, UInt64),
    bytes     SimpleAggregateFunction(sum, UInt64),
    gpu_us    SimpleAggregateFunction(sum, UInt64) COMMENT 'head-of-line time waiting for the device''s GPU',
    credit_us SimpleAggregateFunction(sum, UInt64) COMMENT 'sender: waiting for the peer''s credit',
    net_us    SimpleAggregateFunction(sum, UInt64) COMMENT 'in the network (sender: send; receiver: waiting for data)',
    flush_us  SimpleAggregateFunction(sum, UInt64) COMMENT 'receiver: flushing',
    no_credit SimpleAggregateFunction(sum, UInt64) COMMENT 'sender: polls at which the peer gave no credit',
    ingested  SimpleAggregateFunction(max, DateTime)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(ingested)
ORDER BY (job, comm, dev, peer, direction, channel, minute, attempt, rank)
TTL ingested + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS nccl.flow_minutes_of_flows TO nccl.flow_minutes AS
SELECT
    job, attempt, comm, dev, rank, peer, toString(flows.direction) AS direction, channel,
    toStartOfMinute(toDateTime(flows.ingested, 'UTC')) AS minute,
    sum(toUInt64(flows.n)) AS n, sum(toUInt64(total)) AS steps, sum(flows.bytes) AS bytes,
    sum(flows.gpu_us) AS gpu_us, sum(flows.credit_us) AS credit_us, sum(flows.net_us) AS net_us,
    sum(flows.flush_us) AS flush_us, sum(toUInt64(flows.no_credit)) AS no_credit, max(flows.ingested) AS ingested
FROM nccl.flows AS flows
WHERE kind = 'sum'
GROUP BY job, attempt, comm, dev, rank, peer, direction, channel, minute;
