-- migrate:up

-- "Which have not ended, the oldest first?" It changes when a session ends, never with a message.
CREATE INDEX sessions_open_id_idx ON sessions (id) WHERE ended_at IS NULL;
-- What came late is removed with its session.
CREATE INDEX late_results_session_id_idx ON late_results (session_id);

-- migrate:down

DROP INDEX late_results_session_id_idx;
DROP INDEX sessions_open_id_idx;
