ALTER TABLE nccl.flows
    COMMENT COLUMN kind 'done, state, sum, or orphan: its carrier died after its operation was over';
