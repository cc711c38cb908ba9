-- migrate:up

LOCK TABLE turns, waiting IN ACCESS EXCLUSIVE MODE;

-- What is not to be answered at once: part of a burst or an album until `ready_at`, or, with
-- `awaits_files`, a message whose files are still being prepared, for so long at most.
ALTER TABLE waiting
    ADD COLUMN ready_at timestamptz,
    ADD COLUMN awaits_files boolean NOT NULL DEFAULT false;
-- "The message these files belong to": not for each message of a long line.
CREATE INDEX waiting_awaits_files_idx ON waiting (session_id, platform_message_id)
    WHERE awaits_files;

-- `resting`: nobody is told of the turn before `due_at`; `rested`: it has been put off once.
ALTER TABLE turns ADD COLUMN rest text COLLATE "C";

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
