-- The replica that works on the task. NULL while none does, and where a version from before this column does.
ALTER TABLE task ADD COLUMN runner TEXT COLLATE "C";

CREATE INDEX task_of_runner ON task (runner, id) WHERE runner IS NOT NULL;

-- The replica that took the message. It looks at it as long as there is neither a task nor an answer.
ALTER TABLE message_seen ADD COLUMN runner TEXT COLLATE "C";
