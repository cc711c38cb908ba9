-- migrate:up

-- Results of steps of live turns, which their later attempts get. Gone with the end of the turn.
CREATE TABLE turn_steps (
    turn_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    session_id uuid NOT NULL,
    attempt int NOT NULL,
    result text NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (turn_id, name)
);

-- Whether the turn has results, so that the end of any other turn costs no statement more.
ALTER TABLE turns ADD COLUMN has_steps boolean NOT NULL DEFAULT false;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: finished steps would run again'; END $$;
