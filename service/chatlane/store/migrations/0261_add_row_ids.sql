-- migrate:up

-- The id of a row follows from its session and place, unless `row_id` says otherwise: the row moved to
-- another session, or another row had the place before.
ALTER TABLE messages ADD COLUMN row_id uuid;

-- What a row needs to come back. The rows that took the place of replaced ones begin at
-- `successor_from`; they leave the transcript when the replaced rows come back.
ALTER TABLE removed_messages
    ADD COLUMN row_id uuid,
    ADD COLUMN state text COLLATE "C",
    ADD COLUMN unanswered text COLLATE "C",
    ADD COLUMN successor_from bigint,
    ADD COLUMN successor_through bigint;

-- Summaries of the release before have places that the archive has as well.
UPDATE messages SET row_id = gen_random_uuid()
FROM (SELECT DISTINCT session_id, seq FROM removed_messages) AS archived
WHERE messages.session_id = archived.session_id AND messages.seq = archived.seq;

UPDATE removed_messages SET row_id = gen_random_uuid()
FROM (
    SELECT session_id, removal, seq,
           row_number() OVER (PARTITION BY session_id, seq ORDER BY removal) AS number
    FROM removed_messages
) AS archived
WHERE number > 1 AND removed_messages.session_id = archived.session_id
  AND removed_messages.removal = archived.removal AND removed_messages.seq = archived.seq;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
