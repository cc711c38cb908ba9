-- migrate:up

-- "What goes on where this one was compacted?" and "which are theirs, the newest first?" None of
-- these columns changes with a message, except the owner with the first.
CREATE INDEX sessions_parent_id_idx ON sessions (parent_id) WHERE link_kind = 'compression';
CREATE INDEX sessions_owner_id_idx ON sessions (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX sessions_session_key_id_idx ON sessions (session_key, id);

-- migrate:down

DROP INDEX sessions_session_key_id_idx;
DROP INDEX sessions_owner_id_idx;
DROP INDEX sessions_parent_id_idx;
