-- migrate:up

-- Entries of the erasure list that begin: ids that belonged to somebody else before. What came up
-- to then is not theirs. `is_past`: the id belongs to somebody else again.
CREATE TABLE erased_spans (
    digest bytea NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    is_past boolean NOT NULL,
    erasure uuid NOT NULL,
    PRIMARY KEY (digest, since)
);

-- Whether a router asks these as well; those of older releases do not.
ALTER TABLE routers ADD COLUMN asks_erased_spans boolean NOT NULL DEFAULT false;

-- migrate:down
DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
