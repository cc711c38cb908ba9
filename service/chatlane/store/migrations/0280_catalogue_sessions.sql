-- migrate:up

-- What people keep of a session in their list. `last_message_at` is the time of its newest row that
-- is neither of a tool nor of a person: `last_activity_at` has the time of people.
ALTER TABLE sessions
    ADD COLUMN last_message_at timestamptz,
    ADD COLUMN pinned_at timestamptz,
    ADD COLUMN project_id uuid,
    ADD COLUMN title_by_model boolean NOT NULL DEFAULT false,
    ADD COLUMN read_only boolean NOT NULL DEFAULT false,
    ADD COLUMN labels text[],
    ADD COLUMN worktree jsonb;

UPDATE sessions SET last_message_at = newest.created_at
FROM sessions AS read CROSS JOIN LATERAL (
    SELECT created_at FROM messages
    WHERE messages.session_id = read.id AND role <> 'tool' ORDER BY seq DESC LIMIT 1
) AS newest
WHERE sessions.id = read.id;

-- Lists by activity are read from these indexes and sorted within the hour. So most messages leave the
-- indexes alone: the value of a session changes at most once an hour.
ALTER TABLE sessions DROP COLUMN active_hour;
ALTER TABLE sessions ADD COLUMN active_hour timestamptz GENERATED ALWAYS AS (
    date_bin('1 hour', coalesce(greatest(last_activity_at, last_message_at), started_at),
             timestamptz '2000-01-01 00:00:00+00')
) STORED;
CREATE INDEX sessions_active_hour_idx ON sessions (active_hour);
CREATE INDEX sessions_owner_active_hour_idx ON sessions (owner, active_hour)
    WHERE owner IS NOT NULL;
CREATE INDEX sessions_owner_pinned_idx ON sessions (owner) WHERE pinned_at IS NOT NULL;
CREATE INDEX sessions_project_id_idx ON sessions (project_id, id) WHERE project_id IS NOT NULL;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
