-- migrate:up

LOCK TABLE sessions, lanes;

-- The room in which a shared session began and has been ever since. Its members may read it, where
-- the settings allow it. Without a default: sessions of earlier releases are shown to nobody more.
ALTER TABLE sessions ADD COLUMN room text;
CREATE INDEX sessions_room_id_idx ON sessions (room, id) WHERE room IS NOT NULL;

-- A session that another place leads to, too, gets words that were not said in its room. Triggers,
-- because routers of the release before bind lanes without a look at the room. They run once a
-- statement: for each of many new lanes the function would cost more than the lane.
CREATE FUNCTION leave_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sessions SET room = NULL
    FROM bound
    CROSS JOIN LATERAL (SELECT regexp_match(
        bound.session_key,
        '^agent:[^:]+:([^:]+:[^:]+):group:([^:]+)(?::thread=[^:]+)?(?::user=[^:]+)?(?::scope=([^:]+))?$')
    ) AS matched (place)
    WHERE sessions.id = bound.session_id AND sessions.room IS NOT NULL
      AND sessions.room
          IS DISTINCT FROM place[1] || ':' || place[2] || coalesce(':' || place[3], '');
    RETURN NULL;
END $$;
CREATE TRIGGER lanes_leave_room_when_made AFTER INSERT ON lanes
    REFERENCING NEW TABLE AS bound FOR EACH STATEMENT EXECUTE FUNCTION leave_room();
CREATE TRIGGER lanes_leave_room_when_moved AFTER UPDATE ON lanes
    REFERENCING NEW TABLE AS bound FOR EACH STATEMENT EXECUTE FUNCTION leave_room();

-- The newest report of the members of a room, by the adapter of its account.
CREATE TABLE room_reports (
    room text PRIMARY KEY,
    chat text NOT NULL,
    reported_at timestamptz NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX room_reports_until_idx ON room_reports (until);

-- The id of each member, and the identity that held the id at the time of the report.
CREATE TABLE room_members (
    room text NOT NULL,
    form text NOT NULL,
    owner text NOT NULL,
    PRIMARY KEY (room, form)
);
CREATE INDEX room_members_owner_idx ON room_members (owner);

-- migrate:down

DO $$ BEGIN RAISE EXCEPTION 'cannot be rolled back: it holds what nothing else has'; END $$;
