-- migrate:up

-- Keys of other grammars, as imported conversations bring them, and the lane each leads to.
CREATE TABLE lane_aliases (
    alias text COLLATE "C" PRIMARY KEY,
    session_key text COLLATE "C" NOT NULL
);

-- When a lane gets another key, its aliases go with it.
CREATE INDEX lane_aliases_session_key_idx ON lane_aliases (session_key);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
