-- migrate:up

-- What a session leaves to the next one of its lane, and what that one has to tell once: the note
-- of the session before, whether anything had been answered there, and in which turn or routed
-- message the agent was told (zeros: not yet; none: there is nothing, or an older release knew).
ALTER TABLE sessions
    ADD COLUMN carry_over text,
    ADD COLUMN opening_note text,
    ADD COLUMN reset_had_activity boolean,
    ADD COLUMN told_in uuid;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
