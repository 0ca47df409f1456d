-- Cursors that somebody sends, and those that their sender has left to others: the rest are of tasks that wait, which nobody
-- looks through.
CREATE INDEX push_cursor_sent ON push_cursor (sender) WHERE sender IS NOT NULL;
CREATE INDEX push_cursor_left ON push_cursor (retry_at) WHERE sender IS NULL AND retry_at IS NOT NULL;

-- What another process needs to go on with the turn of a task, should the one that runs it be gone. Empty or NULL where a turn
-- that is lost fails.
ALTER TABLE task ADD COLUMN turn TEXT;

-- Counts the processes that have begun that turn.
ALTER TABLE task ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1;
