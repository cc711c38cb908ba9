-- migrate:up

LOCK TABLE sessions, turns IN ACCESS EXCLUSIVE MODE;

-- How often attempts were lost with their worker: of a turn at all, and when last; of a session
-- in a row, until a result is complete.
ALTER TABLE turns
    ADD COLUMN interruptions integer NOT NULL DEFAULT 0,
    ADD COLUMN interrupted_at timestamptz;
ALTER TABLE sessions ADD COLUMN interruptions integer NOT NULL DEFAULT 0;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
