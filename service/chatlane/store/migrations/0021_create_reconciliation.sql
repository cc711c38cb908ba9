-- migrate:up

-- When database and streams were last compared, what was found, and how far the walks through
-- the large tables have come: one row, so that one router at a time does it.
CREATE TABLE reconciliation (
    is_only boolean PRIMARY KEY DEFAULT true,
    looked_at timestamptz NOT NULL DEFAULT '-infinity',
    found jsonb NOT NULL DEFAULT '{}',
    waiting_after uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    lanes_after text COLLATE "C" NOT NULL DEFAULT '',
    lanes_astray integer NOT NULL DEFAULT 0,
    CONSTRAINT reconciliation_is_only_check CHECK (is_only)
);
INSERT INTO reconciliation DEFAULT VALUES;

-- migrate:down

DROP TABLE reconciliation;
