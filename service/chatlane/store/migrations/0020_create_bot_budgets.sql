-- migrate:up

-- What other bots have spent of what they may say, by bot and chat; the key names neither.
CREATE TABLE bot_budgets (
    key bytea PRIMARY KEY,
    opened_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    messages integer NOT NULL,
    is_silenced boolean NOT NULL
) WITH (fillfactor = 80);

-- migrate:down

DROP TABLE bot_budgets;
