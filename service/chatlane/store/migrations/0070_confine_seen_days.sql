-- migrate:up

-- Routers make and drop the days of `seen` without owning it: these two functions do it for them,
-- as the owner, and nothing else. They look for tables where the migrations made them, whatever
-- the caller's search path says; so temporary tables come last, where none can take a name.
CREATE OR REPLACE FUNCTION create_seen_days(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $function$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    day date;
    name text;
    created integer := 0;
BEGIN
    IF first_day < today - 366 OR last_day > today + 366 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'days of seen are of this year';
    END IF;
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

-- Never a day that may still be asked for: without its marks everything read again would count
-- as new.
CREATE OR REPLACE FUNCTION drop_seen_day(first_kept date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $function$
DECLARE
    name text;
BEGIN
    IF first_kept > (clock_timestamp() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'the last two days of seen are kept';
    END IF;
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

DO $block$
BEGIN
    EXECUTE format(
        'ALTER FUNCTION create_seen_days(date, date) SET search_path = %I, pg_temp',
        current_schema());
    EXECUTE format(
        'ALTER FUNCTION drop_seen_day(date) SET search_path = %I, pg_temp',
        current_schema());
END
$block$;

-- `chatlane admin grants` lets routers call them.
REVOKE ALL ON FUNCTION create_seen_days(date, date), drop_seen_day(date) FROM PUBLIC;

-- migrate:down

-- Who calls them has to own the tables again.
ALTER FUNCTION create_seen_days(date, date) SECURITY INVOKER RESET search_path;
ALTER FUNCTION drop_seen_day(date) SECURITY INVOKER RESET search_path;
GRANT EXECUTE ON FUNCTION create_seen_days(date, date), drop_seen_day(date) TO PUBLIC;
