CREATE TABLE IF NOT EXISTS nccl.flows
(
    job         UInt64 COMMENT 'hash of the job''s name',
    attempt     UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    comm        UInt64 COMMENT 'communicator',
    dev         UInt64 COMMENT 'device that the flow belongs to',
    carrier     UInt64 COMMENT 'process whose proxy carries it: with PXN another than the device''s own',
    seq         UInt64 COMMENT 'number of its operation, from 1; 0 in a sum',
    rank        UInt32 COMMENT 'rank of the device within the communicator',
    peer        Int32 COMMENT 'rank at the other end',
    kind        Enum8('done' = 1, 'state' = 2, 'position' = 3, 'sum' = 4, 'orphan' = 5) COMMENT 'done, state or sum',
    func        Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'operation; ''any'' in a sum',
    direction   Enum8('send' = 1, 'recv' = 2) COMMENT 'which end this is',
    current     UInt8 COMMENT '1: the device is working on its operation now',
    channel     Int16 COMMENT 'channel, -1 for all channels of a sum',
    reserved    UInt16 COMMENT '0',
    flags       UInt32 COMMENT 'schemas.enums.Flag',
    n           UInt32 COMMENT 'operations that this record covers',
    total       UInt32 COMMENT 'steps',
    ready       UInt32 COMMENT 'sender: steps that the GPU has filled',
    transmitted UInt32 COMMENT 'sender: steps handed to the network',
    done        UInt32 COMMENT 'sender: sends completed locally',
    posted      UInt32 COMMENT 'receiver: receives posted',
    received    UInt32 COMMENT 'receiver: steps arrived',
    flushed     UInt32 COMMENT 'receiver: steps visible to the GPU',
    consumed    UInt32 COMMENT 'receiver: steps that the GPU has taken',
    no_credit   UInt32 COMMENT 'sender: polls at which the peer gave no credit',
    bytes       UInt64 COMMENT 'payload moved so far',
    launched    DateTime64(9, 'UTC') COMMENT 'launch of the operation by the host''s clock, 0 where unknown',
    first_us    UInt32 COMMENT 'launch to first progress',
    age_us      UInt32 COMMENT 'launch to sampling, measured on the host',
    quiet_us    UInt32 COMMENT 'last progress to sampling, measured on the host',
    gpu_us      UInt64 COMMENT 'head-of-line time waiting for the GPU (sender: to fill; receiver: to take)',
    credit_us   UInt64 COMMENT 'sender: head-of-line time waiting for the peer''s credit',
    net_us      UInt64 COMMENT 'head-of-line time in the network (sender: send; receiver: receive)',
    flush_us    UInt64 COMMENT 'receiver: head-of-line time in the flush',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, comm, seq, rank, channel, peer, direction)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS nccl.procs
(
    job       UInt64 COMMENT 'hash of the job''s name',
    attempt   UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    proc      UInt64 COMMENT 'one process instance: hash of host, pid and start time',
    dev       UInt64 COMMENT 'its first device, 0 where it has none yet',
    pid       UInt32 COMMENT 'process id in the collector''s PID namespace, else in its own',
    alive     UInt8 COMMENT '1: the process exists',
    state     UInt8 COMMENT 'letter of /proc/PID/stat (R, S, D, T, Z …), 0 where it may not be read',
    tier      UInt8 COMMENT '0 ops, 1 flows, 2 kernel channels',
    api_func  Enum8('any' = 0, 'all_reduce' = 1, 'all_gather' = 2, 'reduce_scatter' = 3, 'broadcast' = 4, 'reduce' = 5, 'all_to_all' = 6, 'gather' = 7, 'scatter' = 8, 'send' = 9, 'recv' = 10, 'send_recv' = 11, 'all_gather_v' = 12, 'barrier' = 13, 'other' = 127) COMMENT 'NCCL call that it is in, ''any'' for none',
    api_us    UInt32 COMMENT 'how long it has been in that call',
    quiet_us  UInt32 COMMENT 'last callback to sampling',
    proxy_us  UInt32 COMMENT 'last callback of its proxy thread to sampling',
    cpu_us    UInt64 COMMENT 'CPU time used since its start, all threads; 0 where it may not be read',
    drops     UInt64 COMMENT 'events that its full tables and rings could not take',
    callbacks UInt64 COMMENT 'callbacks so far',
    sampled   DateTime64(9, 'UTC') COMMENT 'when, by the host''s clock',
    started   DateTime64(9, 'UTC') COMMENT 'start of the process by the host''s clock',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, proc, sampled)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;

