CREATE TABLE IF NOT EXISTS nccl.losses
(
    seen      DateTime64(3, 'UTC'),
    topic     LowCardinality(String),
    partition UInt32,
    source    String COMMENT 'host or import whose messages are missing, empty where the broker lost them',
    what      LowCardinality(String) COMMENT 'offset-gap: the broker no longer had them',
    first     UInt64 COMMENT 'first missing offset',
    missing   UInt64 COMMENT 'how many',
    ingested  DateTime DEFAULT now()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(ingested)
ORDER BY (topic, partition, seen)
TTL ingested + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS nccl.dead
(
    seen      DateTime64(3, 'UTC'),
    topic     LowCardinality(String) COMMENT 'where the message was read',
    partition UInt32,
    offset    UInt64,
    stage     LowCardinality(String) COMMENT 'who refused it',
    reason    String,
    payload   String COMMENT 'base64 of the message',
    ingested  DateTime DEFAULT now()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(ingested)
ORDER BY (topic, partition, offset)
TTL ingested + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000;
