-- migrate:up

-- "Is there an older one of the same session?", before one is tried again.
CREATE INDEX dead_letters_session_id_stored_at_idx ON dead_letters (session_id, stored_at);

-- migrate:down

DROP INDEX dead_letters_session_id_stored_at_idx;
