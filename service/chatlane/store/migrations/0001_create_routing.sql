-- migrate:up

-- Fence, position and take-over state of one partition in one row, so that a batch's
-- compare-and-set on it decides everything at once.
CREATE TABLE partitions (
    log text COLLATE "C" NOT NULL,
    id integer NOT NULL,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    cursor bigint NOT NULL DEFAULT 0,
    cursor_at timestamptz,
    generation text,
    dirty integer NOT NULL DEFAULT 0,
    suspect_seq bigint,
    suspect_count integer NOT NULL DEFAULT 0,
    PRIMARY KEY (log, id),
    CONSTRAINT partitions_log_check CHECK (log IN ('inbound', 'results'))
) WITH (fillfactor = 10);

CREATE TABLE routers (
    id uuid PRIMARY KEY,
    booted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version text NOT NULL,
    seen_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- No foreign keys on tables written per message: the lock order already makes them true,
-- and a key check takes a lock on the parent row for every insert.
CREATE TABLE lanes (
    session_key text COLLATE "C" PRIMARY KEY,
    session_id uuid NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX lanes_session_id_idx ON lanes (session_id);

CREATE TABLE sessions (
    id uuid PRIMARY KEY,
    session_key text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    platform text COLLATE "C" NOT NULL,
    parent_id uuid,
    link_kind text,
    started_at timestamptz NOT NULL,
    start_reason text,
    ended_at timestamptz,
    end_reason text,
    last_activity_at timestamptz,
    served_boundary timestamptz,
    active_turn uuid,
    next_seq bigint NOT NULL DEFAULT 1,
    next_arrival bigint NOT NULL DEFAULT 1,
    next_out_seq bigint NOT NULL DEFAULT 1,
    user_messages bigint NOT NULL DEFAULT 0,
    title text,
    CONSTRAINT sessions_end_check CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) WITH (fillfactor = 80);

-- Session ids start with the time of their first message, so the primary key already lists
-- by age; these two serve the filtered listings without touching a column that messages update.
CREATE INDEX sessions_platform_id_idx ON sessions (platform, id);
CREATE INDEX sessions_agent_id_idx ON sessions (agent, id);

-- Digest first: a batch probes every live day with one array of digests, and only an index
-- that leads with the digest finds 512 of them in milliseconds.
CREATE TABLE seen (
    digest bytea NOT NULL,
    day date NOT NULL,
    session_id uuid,
    arrival bigint,
    PRIMARY KEY (digest, day)
) PARTITION BY RANGE (day);

CREATE TABLE waiting (
    session_id uuid NOT NULL,
    arrival bigint NOT NULL,
    session_key text COLLATE "C" NOT NULL,
    message_id uuid NOT NULL,
    author text,
    platform_message_id text,
    size_bytes integer NOT NULL,
    content text,
    details jsonb NOT NULL,
    source jsonb NOT NULL,
    stored_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, arrival)
);

CREATE TABLE turns (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL,
    agent text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    source jsonb,
    attempt integer NOT NULL DEFAULT 0,
    dispatch integer NOT NULL DEFAULT 1,
    due_at timestamptz NOT NULL,
    claim_id text,
    worker text,
    token text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_at timestamptz,
    ended_at timestamptz,
    result_id text,
    outcome text,
    error text,
    CONSTRAINT turns_state_check CHECK (state IN ('ready', 'claimed', 'done', 'failed', 'void'))
) WITH (fillfactor = 80);

-- At most one live turn per session, whatever the code believes.
CREATE UNIQUE INDEX turns_live_session_id_key ON turns (session_id)
    WHERE state IN ('ready', 'claimed');
-- What the sweeper looks for: leases that ran out, notifications to repeat. `due_at` changes
-- with every renewal, therefore only live turns are in it.
CREATE INDEX turns_due_at_idx ON turns (due_at) WHERE state IN ('ready', 'claimed');

CREATE TABLE messages (
    session_id uuid NOT NULL,
    seq bigint NOT NULL,
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
    PRIMARY KEY (session_id, seq),
    CONSTRAINT messages_role_check CHECK (role IN ('user', 'assistant', 'system', 'tool'))
);

CREATE UNIQUE INDEX messages_id_key ON messages (id) WHERE id IS NOT NULL;
-- The first answer to a routed message wins.
CREATE UNIQUE INDEX messages_reply_to_part_key ON messages (reply_to, part)
    WHERE reply_to IS NOT NULL;
CREATE INDEX messages_turn_id_idx ON messages (turn_id) WHERE turn_id IS NOT NULL;

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid,
    stream text COLLATE "C" NOT NULL,
    router uuid,
    subject text NOT NULL,
    message_id text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- "Is there an older row of this session on this stream?" and nothing else.
CREATE INDEX outbox_session_id_stream_idx ON outbox (session_id, stream);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
