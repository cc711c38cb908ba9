-- migrate:up

-- Erasures of people that were requested and are done by an erasure job. The person is cleared when
-- it ends; what stays is the receipt.
CREATE TABLE erasure_requests (
    id uuid PRIMARY KEY,
    person jsonb,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL,
    tried_at timestamptz,
    problem text,
    erasure uuid,
    finished_at timestamptz,
    deleted jsonb
);
CREATE INDEX erasure_requests_open_idx ON erasure_requests (requested_at) WHERE finished_at IS NULL;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
