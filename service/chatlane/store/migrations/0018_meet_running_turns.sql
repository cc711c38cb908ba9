-- migrate:up

LOCK TABLE lanes, waiting IN ACCESS EXCLUSIVE MODE;

-- How a message met the turn that ran when it came: `queue` gets a turn of its own, `steer` may
-- be taken in by that turn; null is collected into the next one.
ALTER TABLE waiting ADD COLUMN busy text COLLATE "C";
-- "Is there something that a running turn may take in?": asked with every renewal.
CREATE INDEX waiting_steer_idx ON waiting (session_id, arrival) WHERE busy = 'steer';

-- When the people of a lane were last told that a turn is running.
ALTER TABLE lanes ADD COLUMN noted_at timestamptz;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
