-- migrate:up

-- Why a message of a person has no answer and gets none: its turn was given up, stopped or
-- interrupted, or it still waited when its session was stopped or ended.
ALTER TABLE messages ADD COLUMN unanswered text COLLATE "C";

-- Not validated: that would read the table through, and no older row has a value.
ALTER TABLE messages ADD CONSTRAINT messages_unanswered_check
    CHECK (unanswered IN ('failed', 'interrupted', 'stopped', 'session_ended')) NOT VALID;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
