CREATE TABLE IF NOT EXISTS nccl.members
(
    job        UInt64 COMMENT 'hash of the job''s name',
    job_name   String,
    attempt    UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    attempt_name String,
    comm       UInt64 COMMENT 'communicator',
    name       String COMMENT 'name of the communicator or process group',
    source     LowCardinality(String) COMMENT 'host or import that announced it',
    library    LowCardinality(Nullable(String)) COMMENT 'NCCL version, where known',
    nranks     UInt32,
    nnodes     Nullable(UInt32),
    rank       UInt32 COMMENT 'rank within the communicator',
    dev        UInt64 COMMENT 'one GPU of one process instance',
    world_rank Nullable(UInt32),
    host       Nullable(String),
    address    Nullable(String),
    pid        Nullable(UInt32),
    gpu        Nullable(UInt32),
    gpu_id     Nullable(String),
    silent     UInt8 COMMENT '1: a member of which nothing else is known',
    ingested   DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(ingested)
PARTITION BY toYYYYMM(ingested)
ORDER BY (job, attempt, comm, rank)
TTL ingested + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS nccl.incidents
(
    id         String COMMENT '16 hex digits',
    revision   UInt32 COMMENT 'the highest is the present state',
    state      LowCardinality(String),
    job        String,
    attempt    String,
    kind       LowCardinality(String),
    category   LowCardinality(String),
    severity   LowCardinality(String),
    confidence LowCardinality(String),
    summary    String,
    culprits   Array(Nullable(Int32)) COMMENT 'world ranks',
    candidates Array(Nullable(Int32)) COMMENT 'world ranks',
    hosts      Array(String) COMMENT 'hosts of culprits and candidates, where known',
    waiting    UInt32,
    since      Nullable(DateTime64(6, 'UTC')),
    detected   DateTime64(6, 'UTC'),
    closed     Nullable(DateTime64(6, 'UTC')),
    incident   String COMMENT 'the whole alert as JSON',
    ingested   DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMM(ingested)
ORDER BY (job, id)
TTL ingested + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS nccl.verdicts
(
    job        String,
    attempt    String,
    snapshot   String COMMENT 'id of the judged snapshot',
    epoch      UInt64,
    judged     DateTime64(6, 'UTC'),
    incidents  Array(String),
    missing    Array(UInt32) COMMENT 'trace partitions that had not reported',
    lost       UInt64 COMMENT 'messages of the snapshot that never arrived',
    ingested   DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(ingested)
PARTITION BY toYYYYMM(ingested)
ORDER BY (job, attempt, snapshot)
TTL ingested + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 10000;
