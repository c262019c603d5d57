-- The event log and the heads of its streams. Columns are those of eventsalsa/store, so that an
-- existing database of it can be used as it is.
CREATE TABLE IF NOT EXISTS {events} (
    global_position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    {stream_type}    TEXT NOT NULL,
    {stream_id}      TEXT NOT NULL,
    {stream_version} BIGINT NOT NULL,
    event_id        UUID NOT NULL UNIQUE,
    event_type      TEXT NOT NULL,
    event_version   INT NOT NULL DEFAULT 1,
    payload         BYTEA NOT NULL,
    trace_id        TEXT,
    correlation_id  TEXT,
    causation_id    TEXT,
    metadata        JSONB,
    created_at      TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    UNIQUE ({stream_type}, {stream_id}, {stream_version})
);
CREATE INDEX IF NOT EXISTS {events_event_type_idx}
    ON {events} (event_type, global_position);
CREATE INDEX IF NOT EXISTS {events_correlation_idx}
    ON {events} (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS {stream_heads} (
    {stream_type}    TEXT NOT NULL,
    {stream_id}      TEXT NOT NULL,
    {stream_version} BIGINT NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY ({stream_type}, {stream_id})
) WITH (fillfactor = 70);

-- The gap proof needs every appender, in any language, to hold a transaction id before it draws a
-- position. A statement trigger runs before column defaults are evaluated.
CREATE OR REPLACE FUNCTION {schema}.draw_xid_first() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_current_xact_id(); RETURN NULL; END $$;
DROP TRIGGER IF EXISTS tidemill_draw_xid_first ON {events};
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {events}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();

-- Updated, and committed synchronously, by whoever opens an epoch: see docs/explanation/gaps.md.
CREATE TABLE IF NOT EXISTS {schema}.frontier_fence (
    id       INT PRIMARY KEY CHECK (id = 1),
    drawn_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.frontier_fence VALUES (1, NOW()) ON CONFLICT DO NOTHING;
