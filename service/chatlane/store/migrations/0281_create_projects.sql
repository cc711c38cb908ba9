-- migrate:up

-- Folders of people. `sessions.project_id` may name a folder that is gone: such a session is in none,
-- so that the removal of a folder changes no session.
CREATE TABLE projects (
    id uuid PRIMARY KEY,
    owner text NOT NULL,
    name text NOT NULL,
    colour text NOT NULL CHECK (colour ~ '^#[0-9a-fA-F]{6}$'),
    profile text,
    place integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX projects_owner_profile_name_idx
    ON projects (owner, (coalesce(profile, '')), name);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
