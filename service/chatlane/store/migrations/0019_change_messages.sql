-- migrate:up

-- `state`: what its author did to a row since it was written; a deleted one has no content.
ALTER TABLE messages ADD COLUMN state text COLLATE "C";

-- What rows said before they were edited or deleted, the last one last. Found by our id of the
-- message, since rows move where a transcript is compacted; rows that were imported have none.
CREATE TABLE message_revisions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid NOT NULL,
    platform_message_id text NOT NULL,
    message_id uuid,
    content text,
    attachments jsonb,
    reason text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    CONSTRAINT message_revisions_reason_check CHECK (reason IN ('edited', 'deleted'))
);

CREATE INDEX message_revisions_session_id_platform_message_id_idx
    ON message_revisions (session_id, platform_message_id, id);
CREATE INDEX message_revisions_message_id_idx ON message_revisions (message_id, id)
    WHERE message_id IS NOT NULL;

-- The newest edit of each message that has not come. Its mark in `seen` has the arrival -1, so
-- nothing is asked of this table for a message whose mark does not say so.
CREATE TABLE early_edits (
    digest bytea PRIMARY KEY,
    content text,
    attachments jsonb NOT NULL,
    version text,
    event_id text,
    size_bytes integer NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX early_edits_kept_at_idx ON early_edits (kept_at);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
