-- migrate:up

-- A turn that waits for the answer to its question without a worker is ready and rests as `parked`.
ALTER TABLE turns
    DROP CONSTRAINT turns_rest_check,
    ADD CONSTRAINT turns_rest_check CHECK (rest IN ('resting', 'rested', 'parked')) NOT VALID;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: parked turns would lose their questions'; END $$;
