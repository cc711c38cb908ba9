-- migrate:up

-- The number of partitions no longer changes while routers run. A change that has begun must be
-- finished first: this release cannot read a log in the middle of it.
DO $$
BEGIN
    IF EXISTS (SELECT FROM partitions WHERE stop_before IS NOT NULL OR id < 0) THEN
        RAISE EXCEPTION 'a change of the number of partitions has begun: '
            'finish it with `chatlane admin repartition` of the release before, then migrate';
    END IF;
END $$;

-- No release begins another one from here on. Routers of the release before still read
-- `stop_before`, `next_count`, `changed_at` and `routers.follows_changes` during a roll-out, so the
-- columns go in a later release.
ALTER TABLE partitions
    ADD CONSTRAINT partitions_fixed_check CHECK (stop_before IS NULL AND id >= 0);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: routers cannot follow a change of partitions'; END $$;
