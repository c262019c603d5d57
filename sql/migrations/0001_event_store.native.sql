-- The event log partitioned by ranges of positions. PostgreSQL cannot enforce uniqueness across
-- partitions, so event ids and stream versions are kept unique by an unpartitioned side table.
CREATE TABLE IF NOT EXISTS {events} (
    global_position BIGINT NOT NULL,
    {stream_type}    TEXT NOT NULL,
    {stream_id}      TEXT NOT NULL,
    {stream_version} BIGINT NOT NULL,
    event_id        UUID NOT NULL,
    event_type      TEXT NOT NULL,
    event_version   INT NOT NULL DEFAULT 1,
    payload         BYTEA NOT NULL,
    trace_id        TEXT,
    correlation_id  TEXT,
    causation_id    TEXT,
    metadata        JSONB,
    created_at      TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (global_position)
) PARTITION BY RANGE (global_position);
-- Identity columns of partitioned tables exist only since PostgreSQL 17.
CREATE SEQUENCE IF NOT EXISTS {events_sequence} AS BIGINT OWNED BY {events}.global_position;
ALTER TABLE {events} ALTER COLUMN global_position SET DEFAULT nextval('{events_sequence}'::regclass);
CREATE INDEX IF NOT EXISTS {events_stream_idx}
    ON {events} ({stream_type}, {stream_id}, {stream_version});
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

CREATE TABLE IF NOT EXISTS {schema}.event_keys (
    event_id         UUID PRIMARY KEY,
    {stream_type}    TEXT NOT NULL,
    {stream_id}      TEXT NOT NULL,
    {stream_version} BIGINT NOT NULL,
    UNIQUE ({stream_type}, {stream_id}, {stream_version})
);
CREATE OR REPLACE FUNCTION {schema}.keep_event_keys() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    INSERT INTO {schema}.event_keys
    VALUES (NEW.event_id, NEW.{stream_type}, NEW.{stream_id}, NEW.{stream_version});
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.draw_xid_first() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_current_xact_id(); RETURN NULL; END $$;
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {events}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();
CREATE TRIGGER tidemill_keep_event_keys AFTER INSERT ON {events}
    FOR EACH ROW EXECUTE FUNCTION {schema}.keep_event_keys();

CREATE TABLE IF NOT EXISTS {schema}.frontier_fence (
    id       INT PRIMARY KEY CHECK (id = 1),
    drawn_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.frontier_fence VALUES (1, NOW()) ON CONFLICT DO NOTHING;

-- Makes partitions until `ahead` of them lie beyond the last position handed out, and returns how
-- many it made. Built beside the table and attached, because CREATE ... PARTITION OF would lock out
-- appenders. A direct insert into a leaf bypasses the parent's statement trigger: each leaf has it.
CREATE OR REPLACE FUNCTION {schema}.create_event_partitions(partition_size BIGINT, ahead INT)
RETURNS INT LANGUAGE plpgsql AS
$$ DECLARE
    last_position BIGINT := COALESCE(pg_sequence_last_value('{events_sequence}'::regclass), 0);
    next_start    BIGINT;
    bounds        TEXT;
    leaf          TEXT;
    made          INT := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{events_sequence}', 1));
    SELECT COALESCE(max((regexp_match(c.relname, '_p(\d+)$'))[1]::bigint), 1) INTO next_start
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = '{events}'::regclass;
    WHILE next_start <= last_position + partition_size * ahead LOOP
        bounds := format('_p%s_p%s', lpad(next_start::text, 10, '0'),
                         lpad((next_start + partition_size)::text, 10, '0'));
        leaf := '{events_table}' || bounds;
        IF octet_length(leaf) > 63 THEN
            leaf := left('{events_table}', 12) || substr(md5('{events_table}'), 1, 8) || bounds;
        END IF;
        EXECUTE format('CREATE TABLE %I.%I (LIKE {events} INCLUDING DEFAULTS INCLUDING INDEXES,
                        CHECK (global_position >= %s AND global_position < %s))',
                       '{events_schema}', leaf, next_start, next_start + partition_size);
        EXECUTE format('ALTER TABLE {events} ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
                       '{events_schema}', leaf, next_start, next_start + partition_size);
        EXECUTE format('CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON %I.%I
                        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first()',
                       '{events_schema}', leaf);
        next_start := next_start + partition_size;
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
SELECT {schema}.create_event_partitions({partition_size}, {initial_partitions});
