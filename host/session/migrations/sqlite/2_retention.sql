-- Retention counts by tenant, so it looks for those of one that are unchanged for longest.
CREATE INDEX session_changed_of_tenant ON session (tenant, changed_at, id);
DROP INDEX session_changed;
