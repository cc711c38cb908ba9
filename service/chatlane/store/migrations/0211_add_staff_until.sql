-- migrate:up

-- Until when the agent waits, because one of our people has written to the person.
ALTER TABLE sessions ADD COLUMN staff_until timestamptz;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: agents would not wait'; END $$;
