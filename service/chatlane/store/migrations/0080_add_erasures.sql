-- migrate:up

-- Whom the service was told to forget, and what was deleted for it. Nothing here names a person.
CREATE TABLE erasures (
    id uuid PRIMARY KEY,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until timestamptz NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    is_fenced boolean NOT NULL DEFAULT false,
    finished_at timestamptz
);
CREATE INDEX erasures_begun_at_idx ON erasures (begun_at);
CREATE INDEX erasures_key_id_idx ON erasures (key_id);

-- The erasure list: keyed digests of people's ids. What they wrote up to `until` is not to come
-- back, however it comes. Routers ask it for everybody who writes.
CREATE TABLE erased_people (
    digest bytea PRIMARY KEY,
    until timestamptz NOT NULL,
    erasure uuid NOT NULL
);

-- Our own ids of what was erased, so that a result that comes later is known as one; `shared` are
-- sessions that others go on with.
CREATE TABLE erased_ids (
    id uuid PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    erasure uuid NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT erased_ids_kind_check CHECK (kind IN ('session', 'turn', 'message', 'shared'))
);
CREATE INDEX erased_ids_erasure_idx ON erased_ids (erasure, kind, id);
CREATE INDEX erased_ids_erased_at_idx ON erased_ids (erased_at);

-- Messages of streams that are to be deleted, or were: written before they go, so that whoever
-- compares knows why they are missing. `generation` once it is known in which stream.
CREATE TABLE erased_messages (
    stream text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    generation text COLLATE "C",
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    erased_at timestamptz,
    PRIMARY KEY (stream, sequence, stored_at)
);
CREATE INDEX erased_messages_pending_idx ON erased_messages (noted_at) WHERE erased_at IS NULL;
CREATE INDEX erased_messages_noted_at_idx ON erased_messages (noted_at);

-- What was deleted where: a line for each piece of work, in its transaction.
CREATE TABLE erasure_receipts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    erasure uuid NOT NULL,
    store text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    ids jsonb NOT NULL
);
CREATE INDEX erasure_receipts_erasure_idx ON erasure_receipts (erasure, id);

-- Who wrote a message, as far as it tells who it is: what people are found by where no index is.
CREATE FUNCTION sender_of(source jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object(
    'platform', source -> 'platform', 'account', source -> 'account', 'scope', source -> 'scope',
    'sender', jsonb_build_object(
        'id', source #> '{sender,id}', 'alt_id', source #> '{sender,alt_id}',
        'aliases', source #> '{sender,aliases}'));

-- Under which key a router asks the erasure list; those of older releases do not.
ALTER TABLE routers ADD COLUMN erasure_key text COLLATE "C";

-- migrate:down
DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
