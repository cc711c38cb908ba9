-- migrate:up

-- Whether the current attempt counts when it is lost, and how many did not: their claims were
-- answered too late, so that nobody began them.
ALTER TABLE turns
    ADD COLUMN is_begun boolean NOT NULL DEFAULT true,
    ADD COLUMN unbegun integer NOT NULL DEFAULT 0;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
