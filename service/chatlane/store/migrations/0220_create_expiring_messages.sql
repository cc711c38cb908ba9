-- migrate:up

-- Messages that their platform removes at a time, and return addresses that end. A router clears
-- them at that time.
CREATE TABLE expiring_messages (
    message_id uuid NOT NULL,
    part text COLLATE "C" NOT NULL CHECK (part IN ('content', 'return_address')),
    session_id uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (message_id, part)
);
CREATE INDEX expiring_messages_expires_at_idx ON expiring_messages (expires_at);

-- migrate:down

DROP TABLE expiring_messages;
