-- migrate:up

-- What rows of transcripts are found by, and whose they are: filled behind the conversation and
-- never in its way. `removal` is 0 for a row that counts, or the number under which the archive
-- has one that a summary stands for. Ids are in the order of writing; `terms` holds the block of
-- ids that a row is in, so that a search for what is everywhere can begin at the end.
CREATE SEQUENCE searchable_id_seq AS bigint;
CREATE TABLE searchable (
    session_id uuid NOT NULL,
    removal bigint NOT NULL,
    seq bigint NOT NULL,
    id bigint NOT NULL,
    terms tsvector NOT NULL,
    PRIMARY KEY (session_id, removal, seq)
);

-- Without a list of what is still to be sorted in: each search would have to read it through.
CREATE INDEX searchable_terms_idx ON searchable USING gin (terms) WITH (fastupdate = off);

-- How far each session is searchable: up to `seq`, in the archive up to (`removal`,
-- `removed_seq`), and by which marks. Its row lock keeps those who fill and those who take out
-- apart. It changes with every round of filling.
CREATE TABLE search_progress (
    session_id uuid PRIMARY KEY,
    seq bigint NOT NULL DEFAULT 0,
    removal bigint NOT NULL DEFAULT 0,
    removed_seq bigint NOT NULL DEFAULT 0,
    marks text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 80);

-- migrate:down

DROP TABLE search_progress;
DROP TABLE searchable;
DROP SEQUENCE searchable_id_seq;
