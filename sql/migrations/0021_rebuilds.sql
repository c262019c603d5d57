-- Projections that are rebuilt beside themselves: see docs/adr/0016-rebuild.md.

-- Which tables a consumer writes, as its workers say, and where they look for those without schema.
CREATE TABLE {schema}.consumer_tables (
    consumer_name TEXT PRIMARY KEY,
    tables        TEXT[] NOT NULL CHECK (cardinality(tables) > 0),
    search_path   TEXT[] NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

-- One row per consumer that is being rebuilt, or whose tables from before are still kept.
CREATE TABLE {schema}.consumer_rebuilds (
    id            BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    consumer_name TEXT PRIMARY KEY,
    state         TEXT NOT NULL CHECK (state IN ('building', 'swapped', 'rolled_back')),
    partitions    INT NOT NULL CHECK (partitions > 0),
    -- The declared tables, and for each its schema and name.
    declared      TEXT[] NOT NULL,
    table_schemas TEXT[] NOT NULL,
    table_names   TEXT[] NOT NULL,
    reason        TEXT,
    -- Checkpoints of the old tables, by partition of the consumer.
    before        JSONB,
    started_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    changed_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK ((state = 'building') = (before IS NULL))
);

-- A position that no batch of the partition passes, for a short while.
CREATE TABLE {schema}.consumer_holds (
    consumer_name TEXT PRIMARY KEY,
    position      BIGINT NOT NULL,
    holder        UUID NOT NULL,
    until         TIMESTAMPTZ NOT NULL
);
