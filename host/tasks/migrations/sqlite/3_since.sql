-- The number of the event up to which the JSON tells the task, which goes on with the events after that one. NULL where the
-- JSON tells all of it. A task that is 0 here has no JSON: its events tell it, the first of which is the task as it was made.
ALTER TABLE task ADD COLUMN json_seq INTEGER;
