-- migrate:up

-- Values of closed sets that no release has written, such as after a change by hand. Routers go on
-- without a value that they do not know; what it was stands in the audit.

WITH wrong AS (
    SELECT ctid, id AS session_id, end_reason AS was FROM sessions WHERE end_reason NOT IN (
        'idle', 'daily', 'merged', 'imported', 'requested', 'switched',
        'compression', 'suspended', 'resume_pending_expired', 'removed', 'pruned')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'sessions.end_reason', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE sessions SET end_reason = 'requested' FROM wrong WHERE sessions.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, id AS session_id, start_reason AS was FROM sessions WHERE start_reason NOT IN (
        'idle', 'daily', 'requested', 'suspended', 'resume_pending_expired')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'sessions.start_reason', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE sessions SET start_reason = NULL FROM wrong WHERE sessions.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, id AS session_id, link_kind AS was FROM sessions WHERE link_kind NOT IN (
        'branch', 'compression', 'merged')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'sessions.link_kind', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE sessions SET link_kind = NULL FROM wrong WHERE sessions.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, session_id AS session_id, cancel AS was FROM turns WHERE cancel NOT IN (
        'interrupted', 'stopped', 'session_ended')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'turns.cancel', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE turns SET cancel = 'stopped' FROM wrong WHERE turns.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, session_id AS session_id, rest AS was FROM turns WHERE rest NOT IN (
        'resting', 'rested')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'turns.rest', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE turns SET rest = NULL FROM wrong WHERE turns.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, session_id AS session_id, outcome AS was FROM turns WHERE outcome NOT IN (
        'ok', 'failed', 'no_reply')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'turns.outcome', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE turns SET outcome = NULL FROM wrong WHERE turns.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, session_id AS session_id, busy AS was FROM waiting WHERE busy NOT IN (
        'collect', 'queue', 'interrupt', 'steer')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'waiting.busy', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE waiting SET busy = NULL FROM wrong WHERE waiting.ctid = wrong.ctid;

WITH wrong AS (
    SELECT ctid, session_id AS session_id, state AS was FROM messages WHERE state NOT IN (
        'edited', 'deleted')
    FOR UPDATE
), noted AS (
    INSERT INTO audit (action, session_id, detail, outcome)
    SELECT 'value_repaired', session_id,
           jsonb_build_object('column', 'messages.state', 'was', left(was, 64)), 'done' FROM wrong
)
UPDATE messages SET state = NULL FROM wrong WHERE messages.ctid = wrong.ctid;

-- One check for each column, so that a later release can replace the one of the column that gets
-- another value. Not validated here: that reads the tables through under the lock of this.
ALTER TABLE sessions
    ADD CONSTRAINT sessions_end_reason_check CHECK (end_reason IN (
        'idle', 'daily', 'merged', 'imported', 'requested', 'switched',
        'compression', 'suspended', 'resume_pending_expired', 'removed', 'pruned'))
        NOT VALID,
    ADD CONSTRAINT sessions_start_reason_check CHECK (start_reason IN (
        'idle', 'daily', 'requested', 'suspended', 'resume_pending_expired'))
        NOT VALID,
    ADD CONSTRAINT sessions_link_kind_check CHECK (link_kind IN (
        'branch', 'compression', 'merged'))
        NOT VALID;
ALTER TABLE turns
    ADD CONSTRAINT turns_cancel_check CHECK (cancel IN (
        'interrupted', 'stopped', 'session_ended'))
        NOT VALID,
    ADD CONSTRAINT turns_rest_check CHECK (rest IN (
        'resting', 'rested'))
        NOT VALID,
    ADD CONSTRAINT turns_outcome_check CHECK (outcome IN (
        'ok', 'failed', 'no_reply'))
        NOT VALID;
ALTER TABLE waiting
    ADD CONSTRAINT waiting_busy_check CHECK (busy IN (
        'collect', 'queue', 'interrupt', 'steer'))
        NOT VALID;
ALTER TABLE messages
    ADD CONSTRAINT messages_state_check CHECK (state IN (
        'edited', 'deleted'))
        NOT VALID;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: what was repaired is not known wrong'; END $$;
