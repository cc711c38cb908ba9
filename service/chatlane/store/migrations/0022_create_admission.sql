-- migrate:up

-- How much chats and people may write at once. Only there where limits are set; a row that is
-- full again is the same as none. No index but the key, for every message counted updates it.
CREATE TABLE admission (
    key bytea PRIMARY KEY,
    full_at timestamptz,
    told_until timestamptz
) WITH (fillfactor = 50);

-- migrate:down

DROP TABLE admission;
