-- As in PostgreSQL. A file has one process, so that this stays 0.
ALTER TABLE task ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
