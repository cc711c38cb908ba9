-- migrate:up

-- Beside the counts in `usage`: sums of amounts with fractions, as decimals in text, and gauges, of
-- which the latest value counts.
ALTER TABLE sessions
    ADD COLUMN costs jsonb,
    ADD COLUMN gauges jsonb;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
