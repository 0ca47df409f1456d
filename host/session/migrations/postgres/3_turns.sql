-- The turns of a session in the order in which they came, the one that runs first: 'replica/number', a replica being a row of
-- the table of leases. Empty where one process has the sessions for itself.
--
-- The queue is in the row that each append changes, so that an append can neither miss nor overtake a change of the queue.
ALTER TABLE session ADD COLUMN turns TEXT[] COLLATE "C" NOT NULL DEFAULT '{}';

-- A session of revision 0 is none yet: its row is there for the turns that wait to begin it.
CREATE INDEX session_to_begin ON session (changed_at) WHERE revision = 0;
