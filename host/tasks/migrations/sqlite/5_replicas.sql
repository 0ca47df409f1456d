-- The process that works on the task, and the one that took the message. A file has one process, so both stay NULL here.
ALTER TABLE task ADD COLUMN runner TEXT;
ALTER TABLE message_seen ADD COLUMN runner TEXT;
