ALTER TABLE nccl.coll
    ADD COLUMN IF NOT EXISTS step_us UInt32 COMMENT 'state: median interval between launches of this communicator, func and count, 0 where unknown' AFTER duration_p99_us;

ALTER TABLE nccl.waits
    ADD COLUMN IF NOT EXISTS step_us UInt32 COMMENT 'median interval between the waiter''s launches like this one, 0 where unknown' AFTER quiet_us;
