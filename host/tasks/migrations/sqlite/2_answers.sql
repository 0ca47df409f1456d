-- What a message was answered with, when that was a message and no task.
ALTER TABLE message_seen ADD COLUMN answer TEXT;

CREATE INDEX message_answered ON message_seen (seen_at) WHERE answer IS NOT NULL;
