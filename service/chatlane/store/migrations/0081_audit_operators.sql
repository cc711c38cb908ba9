-- migrate:up

-- Who did it and what became of it; none where the service itself did. `actor` is `nats:` with a
-- principal, or `os:` with the user who ran a command; `db_role` is as whom it was connected.
ALTER TABLE audit
    ADD COLUMN actor text COLLATE "C",
    ADD COLUMN outcome text COLLATE "C",
    ADD COLUMN db_role text COLLATE "C" DEFAULT session_user;
CREATE INDEX audit_at_idx ON audit (at);

-- migrate:down
DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
