-- migrate:up

-- "Which branches hold copies of what was said here?" A session is a branch from its start on.
CREATE INDEX sessions_parent_id_branch_idx ON sessions (parent_id) WHERE link_kind = 'branch';

-- migrate:down

DROP INDEX sessions_parent_id_branch_idx;
