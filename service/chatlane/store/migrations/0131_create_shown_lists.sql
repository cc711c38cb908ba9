-- migrate:up

-- The list of conversations that a person was shown last in a place: what a number in `/resume`
-- means. The key names neither.
CREATE TABLE shown_lists (
    key bytea PRIMARY KEY,
    shown_at timestamptz NOT NULL,
    session_ids uuid[] NOT NULL
);

-- migrate:down

DROP TABLE shown_lists;
