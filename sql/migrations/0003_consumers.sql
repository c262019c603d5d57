-- How far each consumer is, what it crossed, and what stopped it.
CREATE TABLE IF NOT EXISTS {consumer_checkpoints} (
    consumer_name TEXT PRIMARY KEY,
    last_position BIGINT NOT NULL DEFAULT 0,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE TABLE IF NOT EXISTS {consumer_gap_skips} (
    id                       BIGSERIAL PRIMARY KEY,
    consumer_name            TEXT NOT NULL,
    worker_id                UUID NOT NULL,
    gap_position             BIGINT NOT NULL,
    skip_to_position         BIGINT NOT NULL,
    highest_visible_position BIGINT NOT NULL,
    first_seen_at            TIMESTAMPTZ NOT NULL,
    created_at               TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX IF NOT EXISTS {consumer_gap_skips_consumer_idx}
    ON {consumer_gap_skips} (consumer_name, created_at DESC);

-- Why a crossing recorded in the table above was right, or who answers for it.
CREATE TABLE {schema}.gap_evidence (
    skip_id   BIGINT PRIMARY KEY,
    how       TEXT NOT NULL CHECK (how IN ('epoch', 'lockers', 'person', 'unsafe-time')),
    missing   BIGINT NOT NULL,
    ceiling   BIGINT,
    fence     XID8,
    reason    TEXT
);

-- A row exists only for a consumer (or partition) that a person or a poison event stopped.
CREATE TABLE {schema}.consumer_states (
    consumer_name TEXT PRIMARY KEY,
    state         TEXT NOT NULL CHECK (state IN ('paused', 'quarantined')),
    reason        TEXT,
    position      BIGINT,
    event_id      UUID,
    error         TEXT,
    stack         TEXT,
    failures      INT,
    since         TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

-- A row per consumer that this version registered, with its number of partitions.
CREATE TABLE {schema}.consumer_partitions (
    consumer_name TEXT PRIMARY KEY,
    partitions    INT NOT NULL CHECK (partitions > 0),
    created_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

-- Streams set aside by `onFailure: "park"`, and their events in order, neither skipped nor handled.
CREATE TABLE {schema}.parked_streams (
    consumer_name TEXT NOT NULL,
    stream_type   TEXT NOT NULL,
    stream_id     TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('parked', 'replaying')),
    error         TEXT NOT NULL,
    stack         TEXT,
    since         TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (consumer_name, stream_type, stream_id)
);
CREATE TABLE {schema}.parked_events (
    consumer_name   TEXT NOT NULL,
    global_position BIGINT NOT NULL,
    stream_type     TEXT NOT NULL,
    stream_id       TEXT NOT NULL,
    parked_at       TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (consumer_name, global_position)
);
CREATE INDEX parked_events_stream_idx
    ON {schema}.parked_events (consumer_name, stream_type, stream_id, global_position);

-- What a person did to a consumer, and why.
CREATE TABLE {schema}.operator_actions (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_name TEXT NOT NULL,
    action        TEXT NOT NULL,
    detail        JSONB NOT NULL DEFAULT '{}',
    reason        TEXT,
    at            TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
