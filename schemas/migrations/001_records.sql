CREATE TABLE IF NOT EXISTS nccl.coll
(
    job             UInt64 COMMENT 'hash of the job''s name',
    attempt         UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm            UInt64 COMMENT 'communicator',
    dev             UInt64 COMMENT 'one GPU of one process instance',
    rank            UInt32 COMMENT 'rank within the communicator',
    nranks          UInt32 COMMENT 'members of the communicator',
    nnodes          UInt32 COMMENT 'hosts of the communicator, 0 where unknown',
    kind            Enum8('done' = 1, 'state' = 2, 'position' = 3, 'sum' = 4, 'orphan' = 5) COMMENT 'what this record says',
    func            Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation; ''any'' in positions that hold for all collectives',
    visibility      Enum8('launch' = 1, 'kernel' = 2, 'flows' = 3, 'complete' = 4) COMMENT 'how much of the operation can be seen on this device',
    datatype        Enum8('unknown' = 0, 'int8' = 1, 'uint8' = 2, 'int32' = 3, 'uint32' = 4, 'int64' = 5, 'uint64' = 6, 'float16' = 7, 'float32' = 8, 'float64' = 9, 'bfloat16' = 10, 'float8_e4m3' = 11, 'float8_e5m2' = 12, 'int16' = 13, 'bool' = 14, 'complex64' = 15, 'complex128' = 16, 'other' = 127) COMMENT 'element type',
    algo            Enum8('unknown' = 0, 'tree' = 1, 'ring' = 2, 'collnet_direct' = 3, 'collnet_chain' = 4, 'nvls' = 5, 'nvls_tree' = 6, 'pat' = 7, 'other' = 127) COMMENT 'algorithm',
    proto           Enum8('unknown' = 0, 'll' = 1, 'll128' = 2, 'simple' = 3, 'other' = 127) COMMENT 'protocol',
    current         UInt8 COMMENT '1: the device is working on this one now; 2: it may be',
    channels        UInt8 COMMENT 'channels used, 0 where unknown',
    flags           UInt32 COMMENT 'schemas.enums.Flag',
    seq             UInt64 COMMENT 'number of the operation, from 1; in a position the last launched',
    ended           UInt64 COMMENT 'position: the last finished; otherwise 0',
    order           UInt64 COMMENT 'launch order within the process, over all communicators; 0 where unknown',
    group           UInt64 COMMENT 'group call, 0 outside one',
    stream          UInt64 COMMENT 'stream, 0 where unknown',
    bytes           UInt64 COMMENT 'payload of the operation, or of all of them in a sum',
    count           UInt64 COMMENT 'elements, as given to the call',
    peer            Int32 COMMENT 'root of a rooted collective or peer of a send or receive, -1 for none',
    n               UInt32 COMMENT 'operations that this record covers',
    launched        DateTime64(9, 'UTC') COMMENT 'launch by the host''s clock, 0 where unknown',
    api_us          UInt32 COMMENT 'API call entered to launch',
    first_us        UInt32 COMMENT 'launch to first progress',
    end_us          UInt32 COMMENT 'launch to end',
    kernel_start_us UInt32 COMMENT 'launch to start of the kernel',
    kernel_end_us   UInt32 COMMENT 'launch to end of the kernel',
    age_us          UInt32 COMMENT 'launch to sampling, measured on the host',
    quiet_us        UInt32 COMMENT 'last progress to sampling, measured on the host',
    duration_sum_us UInt64 COMMENT 'sum of the durations of a sum',
    duration_max_us UInt32 COMMENT 'longest duration of a sum',
    duration_p50_us UInt32 COMMENT 'median duration of a sum',
    duration_p90_us UInt32 COMMENT '90th percentile of a sum',
    duration_p99_us UInt32 COMMENT '99th percentile of a sum',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, comm, func, seq, rank)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS nccl.waits
(
    job              UInt64 COMMENT 'hash of the job''s name',
    attempt          UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm             UInt64 COMMENT 'communicator of the operation',
    seq              UInt64 COMMENT 'number of the operation',
    op               UInt64 COMMENT 'the operation as a node: hash of comm, func space, seq and pair',
    func             Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation',
    reason           Enum8('in_operation' = 1, 'not_launched' = 2, 'queued' = 3, 'peers_finished' = 4, 'mismatch' = 5, 'silent' = 6, 'unseen' = 7, 'starved' = 8, 'gpu_not_ready' = 9, 'not_transmitted' = 10, 'gpu_not_consuming' = 11, 'not_posted' = 12, 'not_delivered' = 13, 'proxy_silent' = 14) COMMENT 'why the waiter waits for the holder',
    waiter_kind      Enum8('device' = 1, 'operation' = 2, 'host' = 3, 'link' = 4, 'group' = 5) COMMENT 'kind of the waiting node',
    holder_kind      Enum8('device' = 1, 'operation' = 2, 'host' = 3, 'link' = 4, 'group' = 5) COMMENT 'kind of the node waited for',
    sure             UInt8 COMMENT '1: the waiter stands here; 0: it may be queued behind something older',
    channel          Int16 COMMENT 'channel, -1 for the whole operation',
    waiter           UInt64 COMMENT 'device, operation, host or first end of a link',
    waiter_stream    UInt64 COMMENT 'stream of a waiting device, 0 where unknown',
    waiter_rank      Int32 COMMENT 'rank of a waiting device in comm, else -1',
    holder           UInt64 COMMENT 'device, operation, host or first end of a link',
    holder_stream    UInt64 COMMENT 'stream of a holding device, 0 where unknown',
    holder_rank      Int32 COMMENT 'rank of a holding device in comm, else -1',
    holder_peer      UInt64 COMMENT 'other end of a link, else 0',
    holder_peer_rank Int32 COMMENT 'rank of the other end of a link, else -1',
    sender           Int32 COMMENT 'point-to-point: rank that sends, else -1',
    receiver         Int32 COMMENT 'point-to-point: rank that receives, else -1',
    since            DateTime64(9, 'UTC') COMMENT 'launch of the operation by the waiter''s host clock, 0 where unknown',
    waited_us        UInt32 COMMENT 'how long the waiter has been in it, measured on its host',
    members          UInt32 COMMENT 'members of the operation',
    launched         UInt32 COMMENT 'of these, how many have launched it',
    finished         UInt32 COMMENT 'of these, how many have finished it',
    silent           UInt32 COMMENT 'of these, of how many nothing is known',
    holder_seq       UInt64 COMMENT 'last operation that the holder has launched here',
    holder_order     UInt64 COMMENT 'launch order of the holder''s process, 0 where unknown',
    differs          UInt32 COMMENT 'schemas.enums.Differs, for a mismatch',
    holder_func      Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'what the holder called, for a mismatch',
    datatype         Enum8('unknown' = 0, 'int8' = 1, 'uint8' = 2, 'int32' = 3, 'uint32' = 4, 'int64' = 5, 'uint64' = 6, 'float16' = 7, 'float32' = 8, 'float64' = 9, 'bfloat16' = 10, 'float8_e4m3' = 11, 'float8_e5m2' = 12, 'int16' = 13, 'bool' = 14, 'complex64' = 15, 'complex128' = 16, 'other' = 127) COMMENT 'what the majority passed',
    holder_datatype  Enum8('unknown' = 0, 'int8' = 1, 'uint8' = 2, 'int32' = 3, 'uint32' = 4, 'int64' = 5, 'uint64' = 6, 'float16' = 7, 'float32' = 8, 'float64' = 9, 'bfloat16' = 10, 'float8_e4m3' = 11, 'float8_e5m2' = 12, 'int16' = 13, 'bool' = 14, 'complex64' = 15, 'complex128' = 16, 'other' = 127) COMMENT 'what the holder passed, for a mismatch',
    count            UInt64 COMMENT 'what the majority passed',
    holder_count     UInt64 COMMENT 'what the holder passed, for a mismatch',
    total            UInt32 COMMENT 'flow: steps of the sender',
    ready            UInt32 COMMENT 'flow: steps that the sender''s GPU has filled',
    transmitted      UInt32 COMMENT 'flow: steps handed to the network',
    done             UInt32 COMMENT 'flow: sends completed',
    posted           UInt32 COMMENT 'flow: receives posted',
    received         UInt32 COMMENT 'flow: steps arrived',
    flushed          UInt32 COMMENT 'flow: steps visible to the receiver''s GPU',
    consumed         UInt32 COMMENT 'flow: steps that the receiver''s GPU has taken',
    epoch            UInt64 COMMENT 'whole second of broker time in which this held',
    partition        UInt32 COMMENT 'trace partition that said so',
    ingested  DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, attempt, epoch, comm, seq)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;

