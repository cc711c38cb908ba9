-- migrate:up

-- Messages that were purged from a log before the end of the replay window, because their account
-- or agent held too much of it. One row for each hour, written before the messages go: `noted`
-- counts those that may be gone, `purged` those that are.
CREATE TABLE log_trims (
    log text COLLATE "C" NOT NULL,
    generation text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    hour timestamptz NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    noted bigint NOT NULL,
    purged bigint NOT NULL DEFAULT 0,
    trimmed_at timestamptz NOT NULL,
    PRIMARY KEY (log, generation, owner, hour)
);

-- migrate:down

DROP TABLE log_trims;
