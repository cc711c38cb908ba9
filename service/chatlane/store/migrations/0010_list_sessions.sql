-- migrate:up

-- `origin`: what opened the session: `chat` for a message of a platform, else the kind that a
-- caller named, such as `acp`. Neither column changes with a message.
ALTER TABLE sessions
    ADD COLUMN origin text COLLATE "C" NOT NULL DEFAULT 'chat',
    ADD COLUMN archived_at timestamptz;

-- Without the many that messages opened: nobody looks for those by it.
CREATE INDEX sessions_origin_id_idx ON sessions (origin, id) WHERE origin <> 'chat';

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
