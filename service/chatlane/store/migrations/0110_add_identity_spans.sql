-- migrate:up

-- A canonical id of a person is the name of an identity: given once, never handed on. An id belongs
-- to one identity at a time. `held_since`: since when it belongs to this one; NULL if it never
-- belonged to another one. `taken_from`: the identity it belonged to before, which is another
-- person. `revision` tells changes of this release from those of older routers beside it.
ALTER TABLE aliases
    ADD COLUMN held_since timestamptz,
    ADD COLUMN taken_from text COLLATE "C",
    ADD COLUMN revision integer NOT NULL DEFAULT 0;

-- Times, now over, in which an id belonged to an identity: from `since` up to, not including,
-- `until`. The current time is the row of the id in `aliases`; an id without one has belonged to
-- one identity always. Spans of an id follow each other, so they never overlap.
CREATE TABLE former_ids (
    platform text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    form text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (platform, account, form, until),
    CONSTRAINT former_ids_span_check CHECK (since < until)
);
CREATE INDEX former_ids_identity_idx ON former_ids (platform, account, identity);

-- Older releases did not record when an id changed hands. What cannot be decided is visible to
-- operators only: an id that leads to another name belongs to that identity since that was first
-- seen, and since now where sessions are owned under the id itself (or where that cannot be
-- told, because the id is written differently in `owner`).
UPDATE aliases SET
    held_since = CASE WHEN was_owner THEN clock_timestamp() ELSE first_seen_at END,
    taken_from = CASE WHEN was_owner THEN aliases.alias END
FROM (
    SELECT platform, account, kind, alias,
           alias !~ '^[A-Za-z0-9._@+!$~-]+$' OR EXISTS (
               SELECT FROM sessions
               WHERE sessions.owner IS NOT NULL AND (
                   sessions.owner = concat_ws(':', known.platform, known.account, known.alias)
                   OR (sessions.owner >= concat_ws(':', known.platform, known.account, known.alias, '')
                       AND sessions.owner
                           < concat_ws(':', known.platform, known.account, known.alias) || ';'))
           ) AS was_owner
    FROM aliases AS known
    WHERE kind = 'person' AND alias <> canonical AND NOT was_canonical
) AS led
WHERE aliases.platform = led.platform AND aliases.account = led.account
  AND aliases.kind = led.kind AND aliases.alias = led.alias;

-- What a router of an older release changes: it records no span, and not whether an id changed
-- hands. An id that was known with a partner and comes with another one has; when exactly, is
-- known only if the new identity began with it.
CREATE FUNCTION keep_identity_spans() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.partner IS NULL OR NEW.partner IS NOT DISTINCT FROM OLD.partner
       OR (NEW.was_canonical AND NOT OLD.was_canonical) THEN
        UPDATE former_ids SET identity = NEW.canonical
        WHERE platform = NEW.platform AND account = NEW.account AND identity = OLD.canonical;
        RETURN NEW;
    END IF;
    INSERT INTO former_ids (platform, account, form, identity, since, until)
    SELECT OLD.platform, OLD.account, OLD.alias, OLD.canonical,
           coalesce(OLD.held_since, '-infinity'), NEW.first_seen_at
    WHERE coalesce(OLD.held_since, '-infinity') < NEW.first_seen_at
    ON CONFLICT DO NOTHING;
    NEW.held_since := clock_timestamp();
    NEW.taken_from := OLD.canonical;
    RETURN NEW;
END $$;
CREATE TRIGGER aliases_keep_identity_spans BEFORE UPDATE ON aliases FOR EACH ROW
    WHEN (OLD.kind = 'person' AND NEW.canonical <> OLD.canonical AND NEW.revision = OLD.revision)
    EXECUTE FUNCTION keep_identity_spans();

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
