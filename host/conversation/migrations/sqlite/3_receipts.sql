-- The number and the digest of the last receipt of the conversation, so that the next receipt can name it.
ALTER TABLE conversation ADD COLUMN receipt TEXT;
