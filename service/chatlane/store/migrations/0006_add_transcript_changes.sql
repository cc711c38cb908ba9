-- migrate:up

-- `revision` counts what changed rows already written; with `next_seq` it is the version of the
-- transcript. `seq_gaps` are places that hold no row any more.
ALTER TABLE sessions
    ADD COLUMN revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN seq_gaps bigint NOT NULL DEFAULT 0;

-- Two writers may bring the same message of a chat; not unique, because two chats of one
-- session may number alike.
CREATE INDEX messages_platform_message_id_idx ON messages (session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;

-- Rows that were undone or replaced. Moved here and not marked, so that nothing that reads
-- `messages` can show them by mistake. `removal` is the revision that took them out.
CREATE TABLE removed_messages (
    session_id uuid NOT NULL,
    removal bigint NOT NULL,
    seq bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    removed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    id uuid,
    role text COLLATE "C" NOT NULL,
    content text,
    details jsonb,
    author text,
    platform_message_id text,
    source jsonb,
    turn_id uuid,
    reply_to uuid,
    part integer,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, removal, seq),
    CONSTRAINT removed_messages_reason_check CHECK (reason IN ('undone', 'replaced'))
);

CREATE INDEX removed_messages_id_idx ON removed_messages (id) WHERE id IS NOT NULL;
CREATE INDEX removed_messages_platform_message_id_idx
    ON removed_messages (session_id, platform_message_id) WHERE platform_message_id IS NOT NULL;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
