-- migrate:up

-- When a sweep looks at an open session again, and the end that it has announced. Only the sweep
-- and changes to a session write these two, so no message meets the index; none means that it has
-- not looked yet, or that no rule ends the session.
ALTER TABLE sessions
    ADD COLUMN check_at timestamptz,
    ADD COLUMN ending_at timestamptz;

CREATE INDEX sessions_check_at_idx ON sessions (check_at)
    WHERE ended_at IS NULL AND check_at IS NOT NULL;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
