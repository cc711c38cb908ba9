-- migrate:up

-- What people have typed and not sent.
CREATE TABLE drafts (
    session_id uuid NOT NULL,
    owner text NOT NULL,
    text text NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, owner)
);
CREATE INDEX drafts_owner_idx ON drafts (owner);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
