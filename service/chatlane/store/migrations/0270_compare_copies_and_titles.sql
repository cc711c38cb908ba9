-- migrate:up

LOCK TABLE sessions, seen IN ACCESS EXCLUSIVE MODE;

-- A short hash of the sender and the words of a message. A later message with the same id and
-- another fingerprint is no copy of it. NULL where it is not known: then every copy is a repeat.
ALTER TABLE seen ADD COLUMN fingerprint integer;

-- The titles of a person are read and compared as people see them, which no index can do.
CREATE INDEX sessions_title_scope_id_idx ON sessions (title_scope, id) WHERE title IS NOT NULL;
CREATE INDEX sessions_owner_id_titled_idx ON sessions (owner, id) WHERE title IS NOT NULL;
CREATE INDEX sessions_session_key_id_titled_idx ON sessions (session_key, id)
    WHERE title IS NOT NULL;

-- A message that disappears is in a dead letter if it was set aside.
CREATE INDEX dead_letters_sequence_idx ON dead_letters (sequence);

-- Lists by activity are read from this index and sorted within the hour. So most messages leave the
-- index alone: the value of a session changes at most once an hour.
ALTER TABLE sessions ADD COLUMN active_hour timestamptz GENERATED ALWAYS AS (
    date_bin('1 hour', coalesce(last_activity_at, started_at), timestamptz '2000-01-01 00:00:00+00')
) STORED;
CREATE INDEX sessions_active_hour_idx ON sessions (active_hour);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
