ALTER TABLE nccl.waits
    MODIFY COLUMN reason Enum8('in_operation' = 1, 'not_launched' = 2, 'queued' = 3, 'peers_finished' = 4, 'mismatch' = 5, 'silent' = 6, 'unseen' = 7, 'starved' = 8, 'gpu_not_ready' = 9, 'not_transmitted' = 10, 'gpu_not_consuming' = 11, 'not_posted' = 12, 'not_delivered' = 13, 'proxy_silent' = 14, 'in_unseen' = 15, 'left' = 16, 'called' = 17, 'dead' = 18, 'stopped' = 19) COMMENT 'why the waiter waits for the holder';

ALTER TABLE nccl.waits
    ADD COLUMN IF NOT EXISTS quiet_us UInt32 COMMENT 'how long nothing of the waiter''s has moved, measured on its host' AFTER partition;

ALTER TABLE nccl.procs
    ADD COLUMN IF NOT EXISTS busy_us UInt32 COMMENT 'launch to sampling of its oldest operation that shows flows or kernels, told or not' AFTER started;
