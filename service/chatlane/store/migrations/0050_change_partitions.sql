-- migrate:up

LOCK TABLE routers, partitions IN ACCESS EXCLUSIVE MODE;

-- While the number of partitions changes: no cursor gets to `stop_before`, and once all of a log
-- stand right before it, its rows give way to `next_count` others (0: to the one that reads the
-- log undivided). `changed_at` is when this was last written.
ALTER TABLE partitions
    ADD COLUMN stop_before bigint,
    ADD COLUMN next_count integer,
    ADD COLUMN changed_at timestamptz,
    -- Also for routers that know nothing of it.
    ADD CONSTRAINT partitions_stop_check CHECK (cursor < stop_before);

-- Whether a router can follow such a change; those of older releases do not say so.
ALTER TABLE routers ADD COLUMN follows_changes boolean NOT NULL DEFAULT false;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
