CREATE TABLE IF NOT EXISTS nccl.lags
(
    job              UInt64 COMMENT 'hash of the job''s name',
    attempt          UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm             UInt64 COMMENT 'communicator',
    dev              UInt64 COMMENT 'one GPU of one process instance',
    rank             UInt32 COMMENT 'rank within the communicator',
    nranks           UInt32 COMMENT 'members of the communicator',
    nnodes           UInt32 COMMENT 'hosts of the communicator, 0 where unknown',
    func             Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation',
    algo             Enum8('unknown' = 0, 'tree' = 1, 'ring' = 2, 'collnet_direct' = 3, 'collnet_chain' = 4, 'nvls' = 5, 'nvls_tree' = 6, 'pat' = 7, 'other' = 127) COMMENT 'algorithm',
    proto            Enum8('unknown' = 0, 'll' = 1, 'll128' = 2, 'simple' = 3, 'other' = 127) COMMENT 'protocol',
    visibility       Enum8('launch' = 1, 'kernel' = 2, 'flows' = 3, 'complete' = 4) COMMENT 'how much of its operations can be seen on this device',
    size_class       UInt8 COMMENT 'c where 2^(c-1) < payload of each operation <= 2^c',
    start            DateTime64(9, 'UTC') COMMENT 'begin of the window, broker time',
    length_us        UInt32 COMMENT 'length of the window',
    n                UInt32 COMMENT 'operations that ended in the window',
    timed            UInt32 COMMENT 'of these, how many whose end is known',
    bytes            UInt64 COMMENT 'payload of all of them',
    duration_sum_us  UInt64 COMMENT 'launch to end, of the timed ones',
    duration_max_us  UInt32 COMMENT 'the longest, UNKNOWN_US where none is known',
    interval_sum_us  UInt64 COMMENT 'from the last launch before to the last one here, on the host''s clock',
    interval_n       UInt32 COMMENT 'operations launched in that time',
    singles          UInt32 COMMENT 'operations that were told one by one; what follows is of these',
    api_sum_us       UInt64 COMMENT 'API call entered to launch',
    first_sum_us     UInt64 COMMENT 'launch to first progress',
    first_n          UInt32 COMMENT 'of how many that is known',
    kernel_sum_us    UInt64 COMMENT 'launch to start of the kernel',
    kernel_n         UInt32 COMMENT 'of how many that is known',
    gap_sum_us       UInt64 COMMENT 'end of its former operation of this communicator and func to the launch',
    gap_n            UInt32 COMMENT 'of how many both are known',
    joined           UInt32 COMMENT 'operations that all members have told; what follows is of these',
    last             UInt32 COMMENT 'in how many it was the last to start',
    waited_sum_us    UInt64 COMMENT 'how much longer it was in them than the last to start: no clock is compared',
    held_sum_us      UInt64 COMMENT 'device-time that the others waited for it where it was the last to start',
    start_lag_sum_us UInt64 COMMENT 'its launch after the first one''s; offsets of clocks removed',
    end_lag_sum_us   UInt64 COMMENT 'its end after the first one''s; offsets of clocks removed',
    clock_ns         Int64 COMMENT 'its host''s clock minus that of the communicator''s first device',
    clock_bound_ns   UInt64 COMMENT 'by how much that may be wrong, 2^64 - 1 where nothing is known',
    run_sum_us       UInt64 COMMENT 'start to end of the kernel',
    run_n            UInt32 COMMENT 'of how many single operations that is known',
    channels         UInt8 COMMENT 'channels used, the most; 0 where unknown',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, comm, func, start, rank)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;
