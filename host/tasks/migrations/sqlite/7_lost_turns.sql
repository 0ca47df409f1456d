-- What another process needs to go on with the turn of a task, should the one that runs it be gone. Empty or NULL where a turn
-- that is lost fails.
ALTER TABLE task ADD COLUMN turn TEXT;

-- Counts the processes that have begun that turn.
ALTER TABLE task ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1;
