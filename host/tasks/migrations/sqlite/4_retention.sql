-- Retention counts by tenant, so it looks for the oldest of one. Nothing looks for the oldest of all.
CREATE INDEX task_finished_of_tenant ON task (tenant, finished_at, id) WHERE finished_at IS NOT NULL;
DROP INDEX task_finished;

CREATE INDEX message_answered_of_tenant ON message_seen (tenant, seen_at) WHERE answer IS NOT NULL;
DROP INDEX message_answered;
