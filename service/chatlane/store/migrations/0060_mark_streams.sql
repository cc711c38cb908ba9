-- migrate:up

-- How the streams that routers write to looked at the last comparison, and, where one has lost
-- something since, how far the search for it has come.
CREATE TABLE stream_marks (
    stream text COLLATE "C" PRIMARY KEY,
    generation text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    holes bigint NOT NULL,
    first_seq bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_seq bigint NOT NULL,
    last_at timestamptz NOT NULL,
    search_after uuid,
    search_until uuid
);
-- "Was this session removed on purpose?"
CREATE INDEX audit_session_id_idx ON audit (session_id) WHERE session_id IS NOT NULL;

-- migrate:down

DROP INDEX audit_session_id_idx;
DROP TABLE stream_marks;
