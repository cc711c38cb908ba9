-- migrate:up

-- Why a running turn is to end: set with the decision, brought to its worker by a message and,
-- should that get lost, by the next renewal.
ALTER TABLE turns ADD COLUMN cancel text COLLATE "C";

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
