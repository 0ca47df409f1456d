-- Indexes for retention, so that a sweep reads the records that it deletes and no others.

-- Sweeps by age, over all tenants.
CREATE INDEX conversation_kept ON conversation (changed_at) WHERE number > 0;
CREATE INDEX conversation_empty ON conversation (changed_at) WHERE number = 0;
CREATE INDEX task_ended ON task (finished_at, id) WHERE finished_at IS NOT NULL;

-- Counts by tenant. The number is in it so that counting reads no rows.
CREATE INDEX conversation_of_tenant ON conversation (tenant, changed_at, id, number) WHERE number > 0;
DROP INDEX conversation_changed;
