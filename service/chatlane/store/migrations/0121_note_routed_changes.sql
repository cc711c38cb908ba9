-- migrate:up

-- Routed messages of stream agents that were edited or deleted since, until ROUTED says so, too.
CREATE TABLE routed_changes (
    message_id uuid PRIMARY KEY,
    session_id uuid NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX routed_changes_session_id_idx ON routed_changes (session_id);
CREATE INDEX routed_changes_noted_at_idx ON routed_changes (noted_at);

-- migrate:down

DROP TABLE routed_changes;
