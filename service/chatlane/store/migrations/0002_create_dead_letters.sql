-- migrate:up

CREATE TABLE dead_letters (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stage text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    log text COLLATE "C",
    partition integer,
    sequence bigint,
    stored_at timestamptz,
    subject text,
    session_id uuid,
    digest bytea NOT NULL,
    size_bytes integer NOT NULL,
    detail text,
    body bytea
);

CREATE INDEX dead_letters_at_idx ON dead_letters (at);

-- Results that came after their turn had gone to somebody else: kept for the operator,
-- without effect on the conversation.
CREATE TABLE late_results (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    session_id uuid NOT NULL,
    turn_id uuid,
    attempt integer,
    reply_to text,
    body bytea NOT NULL
);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
