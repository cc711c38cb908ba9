-- migrate:up

-- The platform's id of the message that shows the answer of a running turn while it is written. The
-- answer replaces that message, also if another adapter process delivers it.
ALTER TABLE turns ADD COLUMN draft text;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
