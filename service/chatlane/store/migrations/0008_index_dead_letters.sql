-- migrate:up

-- "How many are there of each reason, and since when": asked by every router again and again.
CREATE INDEX dead_letters_reason_at_idx ON dead_letters (reason, at);
-- "Is there an older one of the same chat?", before one is tried again.
CREATE INDEX dead_letters_subject_stored_at_idx ON dead_letters (subject, stored_at);
-- What is kept long enough is deleted, the oldest first.
CREATE INDEX late_results_at_idx ON late_results (at);

-- migrate:down

DROP INDEX late_results_at_idx;
DROP INDEX dead_letters_subject_stored_at_idx;
DROP INDEX dead_letters_reason_at_idx;
