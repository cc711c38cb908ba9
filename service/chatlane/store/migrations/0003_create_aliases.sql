-- migrate:up

-- alias → canonical: of persons (phone, hidden id, device forms) and of moved chats.
-- `partner` is the other id of the pair that was seen together; a known alias that turns up
-- with another partner is another person. `was_canonical`: lanes may exist under this alias.
CREATE TABLE aliases (
    platform text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    alias text COLLATE "C" NOT NULL,
    canonical text COLLATE "C" NOT NULL,
    first_seen_at timestamptz NOT NULL,
    partner text COLLATE "C",
    was_canonical boolean NOT NULL DEFAULT false,
    PRIMARY KEY (platform, account, kind, alias),
    CONSTRAINT aliases_kind_check CHECK (kind IN ('person', 'chat'))
);

CREATE INDEX aliases_platform_account_kind_canonical_idx
    ON aliases (platform, account, kind, canonical);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    action text COLLATE "C" NOT NULL,
    session_id uuid,
    detail jsonb NOT NULL
);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
