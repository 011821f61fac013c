ALTER TABLE nccl.losses
    COMMENT COLUMN source 'host whose messages or records are missing, empty where the broker lost them';

ALTER TABLE nccl.losses
    COMMENT COLUMN what 'offset-gap: messages that the broker no longer had; sequence-gap: flushes of a source that never came or could not be read; drops: records that a source has lost, which every partition tells: count them in one';

ALTER TABLE nccl.losses
    COMMENT COLUMN first 'number of the first that is missing: an offset, a sequence number, or how many records were lost before';
