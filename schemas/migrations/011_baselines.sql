CREATE TABLE IF NOT EXISTS nccl.baselines
(
    job             UInt64 COMMENT 'hash of the job''s name',
    attempt         UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm            UInt64 COMMENT 'communicator',
    func            Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation',
    algo            Enum8('unknown' = 0, 'tree' = 1, 'ring' = 2, 'collnet_direct' = 3, 'collnet_chain' = 4, 'nvls' = 5, 'nvls_tree' = 6, 'pat' = 7, 'other' = 127) COMMENT 'algorithm',
    proto           Enum8('unknown' = 0, 'll' = 1, 'll128' = 2, 'simple' = 3, 'other' = 127) COMMENT 'protocol',
    size_class      UInt8 COMMENT 'c where 2^(c-1) < payload of each operation <= 2^c',
    odd             UInt32 COMMENT 'windows of another payload in a row',
    low             UInt32 COMMENT 'windows of half the throughput in a row',
    n               UInt32 COMMENT 'windows from which the interval was learned',
    timed           UInt32 COMMENT 'windows from which the transfer was learned',
    since           Int64 COMMENT 'whole second of broker time in which it was first seen',
    seen            Int64 COMMENT 'and last',
    bytes           Float64 COMMENT 'usual payload',
    interval        Float64 COMMENT 'usual interval from launch to launch, natural logarithm of us',
    interval_spread Float64 COMMENT 'mean distance from that',
    transfer        Float64 COMMENT 'usual duration where it is shortest, natural logarithm of us',
    transfer_spread Float64 COMMENT 'mean distance from that',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, comm, func, size_class, algo, proto, seen)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;
