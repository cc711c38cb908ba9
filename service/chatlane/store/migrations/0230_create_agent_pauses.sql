-- migrate:up

-- Agents that are unavailable: until `until` none of their turns is tried, and then one, `trial`.
-- The others wait for its outcome until `trial_until`. An agent that answers has no row.
CREATE TABLE agent_pauses (
    agent text COLLATE "C" PRIMARY KEY,
    until timestamptz NOT NULL,
    trial uuid,
    trial_until timestamptz NOT NULL
);

-- When an attempt at a turn first found its agent unavailable, and whether the chat was told.
ALTER TABLE turns
    ADD COLUMN waits_since timestamptz,
    ADD COLUMN wait_told boolean NOT NULL DEFAULT false;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: turns would not know since when they wait'; END $$;
