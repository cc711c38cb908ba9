-- migrate:up

-- What a running turn asks a person: id, attempt, options, default, due_at, state and, once there is
-- one, the answer. Gone with the attempt. `has_spoken` says that the turn has sent a message.
ALTER TABLE turns
    ADD COLUMN question jsonb,
    ADD COLUMN has_spoken boolean NOT NULL DEFAULT false;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: running turns would lose their questions'; END $$;
