-- migrate:up

LOCK TABLE sessions, turns IN ACCESS EXCLUSIVE MODE;

-- Whether a turn answers something that a person wrote, and when the last such turn of a session
-- ended: idle times count from there. A router that does not know these columns leaves them alone,
-- and sessions whose turns it claimed are idle as before.
ALTER TABLE turns ADD COLUMN is_asked boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN asked_turn_ended_at timestamptz;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
