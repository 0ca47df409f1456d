-- How often the cards were renewed since the edition was accepted, because an extension has declared its entry again.
ALTER TABLE edition ADD COLUMN renewals BIGINT NOT NULL DEFAULT 0;

-- The replica that renews the cards; NULL if none does.
ALTER TABLE edition ADD COLUMN renewer TEXT COLLATE "C";

-- The time after which another replica may renew the cards.
ALTER TABLE edition ADD COLUMN renewed_until TIMESTAMPTZ;
