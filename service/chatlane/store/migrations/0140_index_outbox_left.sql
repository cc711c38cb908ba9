-- migrate:up

-- The sweep takes the oldest rows of each stream: those of a stream that is gone may be many, and
-- they must not be read through to find the rows of another one.
CREATE INDEX outbox_stream_id_idx ON outbox (stream, id) WHERE router IS NULL;

-- migrate:down

DROP INDEX outbox_stream_id_idx;
