CREATE TABLE IF NOT EXISTS nccl.facts
(
    job         UInt64 COMMENT 'hash of the job''s name',
    attempt     UInt64 COMMENT 'one start of the job: when it began, ns since the epoch',
    dev         UInt64 COMMENT 'device of the job that an Xid is about, 0 where it is none of its own',
    host        FixedString(64) COMMENT 'host, padded with zero bytes',
    name        FixedString(64) COMMENT 'interface, device/port, or PCI address, padded with zero bytes',
    what        Enum8('interface' = 1, 'port' = 2, 'tcp' = 3, 'xid' = 4, 'sxid' = 5) COMMENT 'what the fact is about',
    state       Enum8('unknown' = 0, 'up' = 1, 'down' = 2) COMMENT 'of an interface or a port',
    reserved    UInt16 COMMENT '0',
    code        UInt32 COMMENT 'number of an Xid or SXid, else 0',
    speed_mbps  UInt32 COMMENT 'of an interface or a port, 0 where unknown',
    age_us      UInt32 COMMENT 'how long before it was told the state was first seen, or the kernel logged the line; unknown where the state was so at the first look',
    errors      UInt64 COMMENT 'errors counted so far, both directions',
    retransmits UInt64 COMMENT 'TCP: segments sent again; RDMA port: packets out of sequence',
    timeouts    UInt64 COMMENT 'TCP: retransmission time-outs; RDMA port: acknowledgements that came too late',
    sampled     DateTime64(9, 'UTC') COMMENT 'when it was told, by the host''s clock',
    ingested DateTime DEFAULT now() COMMENT 'when the store took it; partition and TTL go by this'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(ingested)
ORDER BY (job, host, sampled)
TTL ingested + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 10000;
