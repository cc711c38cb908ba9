-- migrate:up

-- Somebody who looks at rows by hand and leaves the transaction open keeps the conversations whose
-- rows are locked waiting. Connections that set a limit of their own keep it, as routers do.
DO $$
BEGIN
    EXECUTE format(
        'ALTER DATABASE %I SET idle_in_transaction_session_timeout = %L', current_database(), '10s');
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'the owner of the database should set idle_in_transaction_session_timeout = 10s';
END
$$;

-- migrate:down

DO $$
BEGIN
    EXECUTE format(
        'ALTER DATABASE %I RESET idle_in_transaction_session_timeout', current_database());
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;
