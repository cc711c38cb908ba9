-- migrate:up

-- Reads the tables through, beside routers that go on writing.
ALTER TABLE sessions VALIDATE CONSTRAINT sessions_end_reason_check;
ALTER TABLE sessions VALIDATE CONSTRAINT sessions_start_reason_check;
ALTER TABLE sessions VALIDATE CONSTRAINT sessions_link_kind_check;
ALTER TABLE turns VALIDATE CONSTRAINT turns_cancel_check;
ALTER TABLE turns VALIDATE CONSTRAINT turns_rest_check;
ALTER TABLE turns VALIDATE CONSTRAINT turns_outcome_check;
ALTER TABLE waiting VALIDATE CONSTRAINT waiting_busy_check;
ALTER TABLE messages
    VALIDATE CONSTRAINT messages_state_check,
    VALIDATE CONSTRAINT messages_unanswered_check;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: a check does not become unproven'; END $$;
