-- Cursors that somebody sends, and those that their sender has left to others: the rest are of tasks that wait, which nobody
-- looks through.
CREATE INDEX push_cursor_sent ON push_cursor (sender) WHERE sender IS NOT NULL;
CREATE INDEX push_cursor_left ON push_cursor (retry_at) WHERE sender IS NULL AND retry_at IS NOT NULL;
