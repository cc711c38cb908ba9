-- migrate:up

-- What a request, an interruption or a result leaves on a session. `held_until` is the latest
-- end of its holds, so that no message has to look into `session_holds`; `usage` sums what
-- results reported, by name.
ALTER TABLE sessions
    ADD COLUMN suspended_at timestamptz,
    ADD COLUMN resume_marked_at timestamptz,
    ADD COLUMN resume_reason text COLLATE "C",
    ADD COLUMN held_until timestamptz,
    ADD COLUMN model_override jsonb,
    ADD COLUMN answers bigint NOT NULL DEFAULT 0,
    ADD COLUMN usage jsonb,
    ADD CONSTRAINT sessions_resume_check
        CHECK ((resume_marked_at IS NULL) = (resume_reason IS NULL)) NOT VALID;

-- What keeps a session from timed resets, and until when at most.
CREATE TABLE session_holds (
    session_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    held_until timestamptz NOT NULL,
    PRIMARY KEY (session_id, name)
);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
