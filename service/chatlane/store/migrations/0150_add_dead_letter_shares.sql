-- migrate:up

-- How many dead letters an account or agent caused in an hour (by the time its messages were
-- stored), and how many of them were not kept because there were too many.
CREATE TABLE dead_letter_shares (
    log text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    hour timestamptz NOT NULL,
    reason text COLLATE "C" NOT NULL,
    kept bigint NOT NULL,
    kept_bytes bigint NOT NULL,
    dropped bigint NOT NULL,
    dropped_bytes bigint NOT NULL,
    first_dropped bigint,
    last_dropped bigint,
    PRIMARY KEY (log, owner, hour, reason)
);
CREATE INDEX dead_letter_shares_hour_idx ON dead_letter_shares (hour);

-- migrate:down

DROP TABLE dead_letter_shares;
