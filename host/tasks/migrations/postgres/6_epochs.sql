-- Counts the turns of a task, and the processes that have taken it from another: whoever writes for an earlier one writes
-- nothing.
ALTER TABLE task ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;

-- The epoch whose turn another process wants to be cancelled.
ALTER TABLE task ADD COLUMN cancel_asked BIGINT;
