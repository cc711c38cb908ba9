-- What each role may do in the database, and nothing else: reviewed by hand, compared with the statements
-- of the service by tests/unit/postgres/test_grants.py.
--
-- Run it as the owner of the tables, in one transaction, at any time and more than once: it creates missing
-- roles, revokes all rights from them and from PUBLIC, and grants what is listed below. The roles are groups
-- without login. `chatlane admin grants` replaces the three names and prints or runs it.

-- Only one at a time.
SELECT pg_advisory_xact_lock(x'6772616e7473'::bigint);

-- A user who may not create roles can run this once somebody else has created them.
DO $roles$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['chatlane_application', 'chatlane_retention', 'chatlane_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$roles$;

-- Rights on columns go with those on their table. Objects of others, such as extensions, stay as they are.
DO $rights$
DECLARE
    statement text;
    roles text := (
        SELECT string_agg(quote_ident(name), ', ')
        FROM unnest(ARRAY['chatlane_application', 'chatlane_retention', 'chatlane_reader']) AS name
    );
BEGIN
    FOR statement IN
        SELECT format('REVOKE ALL ON %s %s FROM PUBLIC, %s', kind, name, roles)
        FROM (
            SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass::text
            FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace
              AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
              AND relowner = current_user::regrole
            UNION ALL
            SELECT 'ROUTINE', oid::regprocedure::text
            FROM pg_proc
            WHERE pronamespace = current_schema()::regnamespace
              AND proowner = current_user::regrole
            UNION ALL
            SELECT 'SCHEMA', quote_ident(current_schema())
            UNION ALL
            SELECT 'DATABASE', quote_ident(current_database())
        ) AS ours (kind, name)
    LOOP
        EXECUTE statement;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), roles);
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %s', current_database(), roles);
END
$rights$;

ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;

-- Routers, and most commands.
GRANT EXECUTE ON FUNCTION create_seen_days TO "chatlane_application";
GRANT EXECUTE ON FUNCTION drop_seen_day TO "chatlane_application";
GRANT SELECT, USAGE ON SEQUENCE searchable_id_seq TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON admission TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON agent_pauses TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON aliases TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON api_requests TO "chatlane_application";
GRANT INSERT, SELECT ON audit TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON bot_budgets TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON dead_letter_shares TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON dead_letters TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON delivered_messages TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON deliveries TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON drafts TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON early_edits TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON expiring_messages TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON former_ids TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON lane_aliases TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON lanes TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON late_results TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON log_marks TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON log_trims TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON message_revisions TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON messages TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON outbox TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON partitions TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON read_marks TO "chatlane_application";
GRANT SELECT, UPDATE ON reconciliation TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON projects TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON removed_messages TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON routed_changes TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON room_members TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON room_reports TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON routers TO "chatlane_application";
GRANT SELECT ON schema_migrations TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON search_progress TO "chatlane_application";
GRANT DELETE, INSERT, SELECT ON searchable TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON seen TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON session_holds TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON sessions TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON shown_lists TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON stream_marks TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON turn_steps TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON turns TO "chatlane_application";
GRANT DELETE, INSERT, SELECT, UPDATE ON waiting TO "chatlane_application";
GRANT INSERT, SELECT ON erasure_requests TO "chatlane_application";
GRANT SELECT ON erased_ids TO "chatlane_application";
GRANT INSERT, SELECT, UPDATE ON erased_messages TO "chatlane_application";
GRANT SELECT ON erased_people TO "chatlane_application";
GRANT SELECT ON erased_spans TO "chatlane_application";
GRANT SELECT ON erasures TO "chatlane_application";

-- Commands that delete by age or on request.
GRANT EXECUTE ON FUNCTION drop_seen_day TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON api_requests TO "chatlane_retention";
GRANT DELETE, SELECT ON dead_letters TO "chatlane_retention";
GRANT DELETE, SELECT ON delivered_messages TO "chatlane_retention";
GRANT DELETE, SELECT ON deliveries TO "chatlane_retention";
GRANT DELETE, SELECT ON early_edits TO "chatlane_retention";
GRANT DELETE, SELECT ON late_results TO "chatlane_retention";
GRANT SELECT ON schema_migrations TO "chatlane_retention";
GRANT EXECUTE ON FUNCTION sender_of TO "chatlane_retention";
GRANT SELECT ON agent_pauses TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT, UPDATE ON aliases TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT, UPDATE ON audit TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT ON erased_ids TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT, UPDATE ON erased_messages TO "chatlane_retention";
GRANT INSERT, SELECT, UPDATE ON erased_people TO "chatlane_retention";
GRANT INSERT, SELECT, UPDATE ON erased_spans TO "chatlane_retention";
GRANT INSERT, SELECT ON erasure_receipts TO "chatlane_retention";
GRANT INSERT, SELECT, UPDATE ON erasures TO "chatlane_retention";
GRANT SELECT, UPDATE ON erasure_requests TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT, UPDATE ON former_ids TO "chatlane_retention";
GRANT DELETE, SELECT ON lane_aliases TO "chatlane_retention";
GRANT DELETE, SELECT ON lanes TO "chatlane_retention";
GRANT DELETE, SELECT ON message_revisions TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON messages TO "chatlane_retention";
GRANT SELECT ON outbox TO "chatlane_retention";
GRANT SELECT, UPDATE ON partitions TO "chatlane_retention";
GRANT DELETE, SELECT ON drafts TO "chatlane_retention";
GRANT DELETE, SELECT ON projects TO "chatlane_retention";
GRANT DELETE, SELECT ON read_marks TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON removed_messages TO "chatlane_retention";
GRANT DELETE, SELECT ON room_members TO "chatlane_retention";
GRANT SELECT ON room_reports TO "chatlane_retention";
GRANT SELECT ON routers TO "chatlane_retention";
GRANT DELETE, INSERT, SELECT, UPDATE ON search_progress TO "chatlane_retention";
GRANT DELETE, SELECT ON searchable TO "chatlane_retention";
GRANT DELETE, SELECT ON session_holds TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON sessions TO "chatlane_retention";
GRANT DELETE, SELECT ON turn_steps TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON turns TO "chatlane_retention";
GRANT DELETE, SELECT, UPDATE ON waiting TO "chatlane_retention";

-- People and dashboards: no content, no name, no token.
GRANT SELECT (full_at, told_until) ON admission TO "chatlane_reader";
GRANT SELECT ON agent_pauses TO "chatlane_reader";
GRANT SELECT (platform, account, kind, first_seen_at, was_canonical) ON aliases TO "chatlane_reader";
GRANT SELECT (principal, at) ON api_requests TO "chatlane_reader";
GRANT SELECT (id, at, action, session_id) ON audit TO "chatlane_reader";
GRANT SELECT (opened_at, last_at, messages, is_silenced) ON bot_budgets TO "chatlane_reader";
GRANT SELECT ON dead_letter_shares TO "chatlane_reader";
GRANT SELECT (id, at, stage, reason, log, partition, sequence, stored_at, session_id, size_bytes, detail) ON dead_letters TO "chatlane_reader";
GRANT SELECT (session_id, message_id, platform, account, agent, turn_id, out_seq, part, state, failure, retry_at, sent, pieces, created_at, changed_at, is_untold, told_in) ON deliveries TO "chatlane_reader";
GRANT SELECT (session_id, changed_at) ON drafts TO "chatlane_reader";
GRANT SELECT (size_bytes, kept_at) ON early_edits TO "chatlane_reader";
GRANT SELECT (message_id, part, session_id, expires_at) ON expiring_messages TO "chatlane_reader";
GRANT SELECT (session_id, noted_at) ON lanes TO "chatlane_reader";
GRANT SELECT (at, session_id, turn_id, attempt) ON late_results TO "chatlane_reader";
GRANT SELECT ON log_marks TO "chatlane_reader";
GRANT SELECT ON log_trims TO "chatlane_reader";
GRANT SELECT (id, session_id, message_id, reason, at) ON message_revisions TO "chatlane_reader";
GRANT SELECT (session_id, seq, id, role, turn_id, reply_to, part, created_at, state, unanswered, row_id) ON messages TO "chatlane_reader";
GRANT SELECT (id, session_id, stream, router, message_id, created_at) ON outbox TO "chatlane_reader";
GRANT SELECT ON partitions TO "chatlane_reader";
GRANT SELECT (id, colour, profile, place, created_at) ON projects TO "chatlane_reader";
GRANT SELECT (session_id, through_seq, read_at) ON read_marks TO "chatlane_reader";
GRANT SELECT (id, requested_at, tried_at, finished_at, erasure, deleted) ON erasure_requests TO "chatlane_reader";
GRANT SELECT ON reconciliation TO "chatlane_reader";
GRANT SELECT (session_id, removal, seq, reason, removed_at, id, role, turn_id, reply_to, part, created_at, row_id, state, unanswered, successor_from, successor_through) ON removed_messages TO "chatlane_reader";
GRANT SELECT (reported_at, until) ON room_reports TO "chatlane_reader";
GRANT SELECT ON routers TO "chatlane_reader";
GRANT SELECT ON schema_migrations TO "chatlane_reader";
GRANT SELECT (session_id, seq, removal, removed_seq) ON search_progress TO "chatlane_reader";
GRANT SELECT (session_id, removal, seq, id) ON searchable TO "chatlane_reader";
GRANT SELECT (day, session_id, arrival) ON seen TO "chatlane_reader";
GRANT SELECT (session_id, held_until) ON session_holds TO "chatlane_reader";
GRANT SELECT (id, agent, platform, parent_id, link_kind, started_at, start_reason, ended_at, end_reason, last_activity_at, served_boundary, active_turn, next_seq, next_arrival, next_out_seq, user_messages, revision, seq_gaps, origin, archived_at, suspended_at, resume_marked_at, resume_reason, held_until, answers, usage, costs, gauges, reset_had_activity, told_in, check_at, ending_at, interruptions, staff_until, last_message_at, pinned_at, project_id, title_by_model, read_only, active_hour) ON sessions TO "chatlane_reader";
GRANT SELECT (shown_at, session_ids) ON shown_lists TO "chatlane_reader";
GRANT SELECT ON stream_marks TO "chatlane_reader";
GRANT SELECT (turn_id, session_id, attempt, kept_at) ON turn_steps TO "chatlane_reader";
GRANT SELECT (id, session_id, agent, state, attempt, dispatch, due_at, worker, created_at, claimed_at, ended_at, outcome, cancel, rest, interruptions, interrupted_at, waits_since, wait_told) ON turns TO "chatlane_reader";
GRANT SELECT (session_id, arrival, message_id, size_bytes, stored_at, busy, ready_at, awaits_files) ON waiting TO "chatlane_reader";
