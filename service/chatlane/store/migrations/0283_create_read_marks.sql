-- migrate:up

-- Up to which row people have read sessions. Written when a person reads, never per message.
CREATE TABLE read_marks (
    session_id uuid NOT NULL,
    owner text NOT NULL,
    through_seq bigint NOT NULL,
    read_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, owner)
);
CREATE INDEX read_marks_owner_idx ON read_marks (owner);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
