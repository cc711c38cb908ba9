-- migrate:up

-- `owner`: the person whose session it is, as `domain/addressing/owners.py` writes it; none where several
-- people talk. `title_scope`: among whose sessions the title is the only one, fixed when it is
-- given, since the other two can change with a message, and no message may meet this index.
ALTER TABLE sessions
    ADD COLUMN owner text COLLATE "C",
    ADD COLUMN title_scope text COLLATE "C",
    ADD COLUMN cwd text,
    ADD COLUMN model text,
    ADD COLUMN config jsonb;

CREATE UNIQUE INDEX sessions_title_title_scope_key ON sessions (title, title_scope)
    WHERE title IS NOT NULL;

-- What each request for a change was answered; `digest` is of what it asked for.
CREATE TABLE api_requests (
    principal text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    digest bytea NOT NULL,
    reply bytea,
    PRIMARY KEY (principal, id)
) WITH (fillfactor = 80);

CREATE INDEX api_requests_at_idx ON api_requests (at);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
