-- migrate:up

-- How far each log reached, about once an hour: everything up to `last_sequence` was stored
-- before `at`. Tells how far a log may be purged without asking it for the age of messages.
CREATE TABLE log_marks (
    log text COLLATE "C" NOT NULL,
    generation text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    last_sequence bigint NOT NULL,
    PRIMARY KEY (log, generation, at),
    CONSTRAINT log_marks_log_check CHECK (log IN ('inbound', 'results'))
);

-- The sweep looks for rows without a router and for rows of routers that are gone; without
-- this it would read the whole table, which is long exactly when NATS is away.
CREATE INDEX outbox_router_id_idx ON outbox (router, id);

-- A row lives for milliseconds: without this the table is mostly dead rows between two visits.
ALTER TABLE outbox SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Partition bounds and names cannot be parameters, so the statements are built here and not in
-- the code. ATTACH locks the parent only against other DDL, where CREATE ... PARTITION OF
-- would wait for every batch and make every batch behind it wait.
CREATE FUNCTION create_seen_days(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql AS $function$
DECLARE
    day date;
    name text;
    created integer := 0;
BEGIN
    -- One creator at a time; whoever waited finds the work done.
    PERFORM pg_advisory_xact_lock(x'7365656e64617973'::bigint);
    FOR day IN
        SELECT generate_series(first_day::timestamp, last_day::timestamp, interval '1 day')::date
    LOOP
        name := 'seen_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE seen INCLUDING ALL)', name);
        EXECUTE format(
            'ALTER TABLE seen ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            name, day, day + 1);
        created := created + 1;
    END LOOP;
    RETURN created;
END
$function$;

-- Drops the oldest day that ends before `first_kept`, one per call: each takes the parent's
-- strongest lock, so it is asked for briefly and held for one DROP.
CREATE FUNCTION drop_seen_day(first_kept date) RETURNS boolean
LANGUAGE plpgsql AS $function$
DECLARE
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(x'7365656e64617973'::bigint);
    SELECT child.relname INTO name
    FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'seen'::regclass
      AND child.relname < 'seen_' || to_char(first_kept, 'YYYYMMDD')
    ORDER BY child.relname LIMIT 1;
    IF name IS NULL THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true);
    EXECUTE format('DROP TABLE %I', name);
    RETURN true;
END
$function$;

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
