-- migrate:up

-- What became of each outbound message. A router adds the row with the message and changes it by the
-- receipts of the adapter. A receipt that is read before its message (after a restore) adds the row
-- without an agent.
CREATE TABLE deliveries (
    session_id uuid NOT NULL,
    message_id uuid NOT NULL,
    platform text NOT NULL,
    account text NOT NULL,
    agent text,
    turn_id uuid,
    out_seq bigint,
    part int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'handed', 'delivered', 'failed', 'unknown')),
    failure text
        CHECK (failure IN ('blocked', 'gone', 'too_large', 'refused', 'rate_limited', 'unknown')),
    retry_at timestamptz,
    sent int NOT NULL DEFAULT 0,
    pieces int,
    platform_message_ids jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL,
    changed_at timestamptz,
    is_untold boolean NOT NULL DEFAULT false,
    told_in uuid,
    PRIMARY KEY (session_id, message_id)
) WITH (fillfactor = 80);
CREATE INDEX deliveries_untold_idx ON deliveries (session_id) WHERE is_untold;
CREATE INDEX deliveries_unexpected_idx ON deliveries (created_at) WHERE agent IS NULL;

-- The outbound message behind a platform's message id, by the digest of the id and its chat.
CREATE TABLE delivered_messages (
    digest bytea PRIMARY KEY,
    session_id uuid NOT NULL,
    message_id uuid NOT NULL,
    piece int NOT NULL
);
CREATE INDEX delivered_messages_session_id_idx ON delivered_messages (session_id);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: deliveries would be unknown'; END $$;
