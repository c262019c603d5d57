-- Tasks: what waits and runs, what ended, and who may claim what. docs/explanation/tasks.md says why
-- the tables are cut this way.

-- Queues as their definitions registered them, and what a person set.
CREATE TABLE {schema}.key_spaces (
    id         INT GENERATED ALWAYS AS IDENTITY (MINVALUE 0 START 0) PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE TABLE {schema}.queues (
    name           TEXT PRIMARY KEY,
    key_space_id   INT NOT NULL REFERENCES {schema}.key_spaces (id),
    settings       JSONB NOT NULL DEFAULT '{}',
    limits_defined JSONB NOT NULL DEFAULT '{}',
    limits_set     JSONB NOT NULL DEFAULT '{}', -- By a person: each holds over the definition's.
    limits         JSONB NOT NULL GENERATED ALWAYS AS (limits_defined || limits_set) STORED,
    paused_at      TIMESTAMPTZ,
    pause_reason   TEXT,
    created_at     TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at     TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

-- A lane is a line of unkeyed tasks that are claimed in order: one per queue, tenant and priority.
-- Priority -1 is the queue's probation. Lanes are never deleted: a producer may remember one.
-- Keyed tasks wait in lanes with negative numbers, 360 per key space, one per bucket.
CREATE TABLE {schema}.task_lanes (
    lane     INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    TEXT NOT NULL REFERENCES {schema}.queues (name),
    tenant   TEXT NOT NULL,
    priority SMALLINT NOT NULL CHECK (priority BETWEEN -1 AND 9),
    UNIQUE (queue, tenant, priority)
);

-- Numbers tasks and orders claims: mostly a task's first claim order is its id, and one that is put
-- back draws another number, which then is nobody's id.
CREATE SEQUENCE {schema}.task_numbers AS BIGINT CACHE 1 NO CYCLE;

-- A claim changes no column that an index holds, so it is a HOT update, a little larger than the row;
-- the space left on each page is for that. What it changes is side by side: WAL carries little else.
CREATE TABLE {schema}.tasks (
    id               BIGINT PRIMARY KEY,
    claim_order      BIGINT,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    run_at           TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    lane             INT NOT NULL,
    max_attempts     INT NOT NULL,
    priority         SMALLINT NOT NULL,
    partition_bucket SMALLINT,
    losses           SMALLINT NOT NULL DEFAULT 0,
    on_probation     BOOLEAN NOT NULL DEFAULT FALSE,
    state            TEXT NOT NULL CHECK (state IN ('scheduled', 'pending', 'running')),
    attempt          INT NOT NULL DEFAULT 0,
    lease_generation INT NOT NULL DEFAULT 0,
    claim_id         UUID,
    leased_by        UUID,
    claimed_at       TIMESTAMPTZ,
    lease_until      TIMESTAMPTZ,
    tenant           TEXT NOT NULL,
    queue            TEXT NOT NULL,
    kind             TEXT,
    partition_key    TEXT,
    payload          TEXT,
    bytes            BYTEA,
    content_type     TEXT,
    options          JSONB,
    progress         JSONB,
    cancel_reason    TEXT,
    CHECK ((claim_order IS NULL) = (state = 'scheduled')),
    CHECK ((payload IS NULL) <> (bytes IS NULL)),
    CHECK ((partition_key IS NULL) = (partition_bucket IS NULL)),
    CHECK (cancel_reason IS NULL OR state = 'running')
) WITH (fillfactor = 42, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 50000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 50000);
CREATE INDEX tasks_lane_idx ON {schema}.tasks (lane, claim_order) WHERE claim_order IS NOT NULL;
CREATE INDEX tasks_scheduled_idx ON {schema}.tasks (run_at) WHERE claim_order IS NULL;

-- The floors of lanes rest on epochs, and those need the transaction id before the claim order.
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();

-- Tasks of one bulk enqueue that are alike but for their payloads and keys, up to a hundred in a row.
-- A pack waits, is claimed and completes as one; as soon as anything else becomes of one of its
-- tasks it is opened: all of them become rows of the table above, waiting or running as it was. It
-- is claimed at most once, so its tasks are at attempt and generation 1 while it runs. Those of
-- keyed tasks have no key twice, and wait in one lane per key space, with a negative number.
CREATE TABLE {schema}.task_packs (
    id           BIGINT PRIMARY KEY, -- Of the first of its tasks; also where it stands in its lane.
    last_id      BIGINT NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    lane         INT NOT NULL,
    max_attempts INT NOT NULL,
    priority     SMALLINT NOT NULL,
    claim_id     UUID,
    leased_by    UUID,
    claimed_at   TIMESTAMPTZ,
    lease_until  TIMESTAMPTZ,
    tenant       TEXT NOT NULL,
    queue        TEXT NOT NULL,
    kind         TEXT,
    options      JSONB,
    ids          BIGINT[] NOT NULL,
    payloads     TEXT NOT NULL, -- Separated by U+001E, which JSON never holds raw.
    keys         TEXT,          -- Separated likewise.
    buckets      SMALLINT[],    -- Of the keys, in their order.
    bucket_set   BIT(360),      -- The same, to be compared with what a worker owns.
    CHECK ((claim_id IS NULL) = (lease_until IS NULL)),
    CHECK ((keys IS NULL) = (lane > 0) AND (keys IS NULL) = (bucket_set IS NULL))
) WITH (fillfactor = 50, toast_tuple_target = 4080); -- Only payloads are worth a place of their own.
ALTER TABLE {schema}.task_packs ALTER COLUMN payloads SET STORAGE EXTERNAL;
CREATE INDEX task_packs_lane_idx ON {schema}.task_packs (lane, id);
CREATE INDEX task_packs_last_idx ON {schema}.task_packs (last_id);
-- Where a task is, by its id: packs of enqueues at the same time have numbers among each other's.
CREATE INDEX task_packs_ids_idx ON {schema}.task_packs USING gist (int8range(id, last_id, '[]'));
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {schema}.task_packs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();

-- What waits and runs, each task a row, for people: it opens every pack to look into it.
CREATE VIEW {schema}.live_tasks AS
SELECT id, tenant, queue, kind, priority, partition_key, state, attempt, max_attempts,
       lease_generation, claim_id, leased_by, claimed_at, lease_until, created_at, run_at,
       payload, bytes, content_type, options
  FROM {schema}.tasks
 UNION ALL
SELECT one.id, tenant, queue, kind, priority, one.key,
       CASE WHEN claim_id IS NULL THEN 'pending' ELSE 'running' END,
       (claim_id IS NOT NULL)::int, max_attempts, (claim_id IS NOT NULL)::int, claim_id, leased_by,
       claimed_at, lease_until, created_at, created_at, one.payload, NULL, NULL, options
  FROM {schema}.task_packs AS pack
 CROSS JOIN LATERAL unnest(pack.ids, string_to_array(pack.payloads, chr(30)),
                           string_to_array(pack.keys, chr(30)))
            AS one(id, payload, key);

-- One row per claim statement: which tasks it took, and when to look whether they came back.
CREATE TABLE {schema}.task_claims (
    claim_id   UUID PRIMARY KEY,
    worker_id  UUID NOT NULL,
    claimed_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    check_at   TIMESTAMPTZ NOT NULL,
    task_ids   BIGINT[] NOT NULL,
    pack_ids   BIGINT[], -- Of the packs in which those tasks were taken.
    key_lanes  INT[]
) WITH (fillfactor = 70);
-- Thousands of ids: squeezing them costs more than the claim itself.
ALTER TABLE {schema}.task_claims ALTER COLUMN task_ids SET STORAGE EXTERNAL;
CREATE INDEX task_claims_check_idx ON {schema}.task_claims (check_at);

-- How many tasks of each queue are live, as changes that a leader adds up: nobody counts rows.
CREATE TABLE {schema}.task_tally (
    queue    TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    amount   BIGINT NOT NULL
);
CREATE TABLE {schema}.task_depths (
    queue    TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    depth    BIGINT NOT NULL,
    PRIMARY KEY (queue, priority)
);

-- Outlives its task for the window of the key.
CREATE TABLE {schema}.task_idempotency (
    tenant     TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       TEXT NOT NULL,
    task_id    BIGINT NOT NULL,
    end_state  TEXT,
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant, key)
);
CREATE INDEX task_idempotency_expires_idx ON {schema}.task_idempotency (expires_at);

-- What ended, one partition per day, dropped whole. The default partition keeps completions going
-- when nobody made the day's partition in time.
CREATE TABLE {schema}.task_history (
    id               BIGINT NOT NULL,
    finished_at      TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_at       TIMESTAMPTZ NOT NULL,
    run_at           TIMESTAMPTZ NOT NULL,
    claimed_at       TIMESTAMPTZ,
    claim_id         UUID,
    leased_by        UUID,
    lease_generation INT NOT NULL,
    attempt          INT NOT NULL,
    max_attempts     INT NOT NULL,
    priority         SMALLINT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    tenant           TEXT NOT NULL,
    queue            TEXT NOT NULL,
    kind             TEXT,
    partition_key    TEXT,
    payload          TEXT,
    bytes            BYTEA,
    content_type     TEXT,
    options          JSONB,
    result           TEXT,
    reason           TEXT
) PARTITION BY RANGE (finished_at);
CREATE INDEX task_history_id_idx ON {schema}.task_history (id);
CREATE TABLE {schema}.task_history_default PARTITION OF {schema}.task_history DEFAULT;

-- Every attempt that did not complete, and why.
CREATE TABLE {schema}.task_failures (
    task_id   BIGINT NOT NULL,
    at        TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    attempt   INT NOT NULL,
    outcome   TEXT NOT NULL,
    reason    TEXT NOT NULL,
    stack     TEXT,
    worker_id UUID
) PARTITION BY RANGE (at);
CREATE INDEX task_failures_task_idx ON {schema}.task_failures (task_id);
CREATE TABLE {schema}.task_failures_default PARTITION OF {schema}.task_failures DEFAULT;

-- Out of attempts, or not to be tried again: waits for a person.
CREATE TABLE {schema}.dead_letters (
    id               BIGINT PRIMARY KEY,
    dead_at          TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_at       TIMESTAMPTZ NOT NULL,
    run_at           TIMESTAMPTZ NOT NULL,
    claim_order      BIGINT NOT NULL,
    claimed_at       TIMESTAMPTZ,
    claim_id         UUID,
    leased_by        UUID,
    lease_generation INT NOT NULL,
    lane             INT NOT NULL,
    attempt          INT NOT NULL,
    max_attempts     INT NOT NULL,
    losses           SMALLINT NOT NULL,
    priority         SMALLINT NOT NULL,
    partition_bucket SMALLINT,
    tenant           TEXT NOT NULL,
    queue            TEXT NOT NULL,
    kind             TEXT,
    partition_key    TEXT,
    payload          TEXT,
    bytes            BYTEA,
    content_type     TEXT,
    options          JSONB,
    cause            TEXT NOT NULL
                     CHECK (cause IN ('attempts_exhausted', 'worker_lost', 'invalid_payload')),
    reason           TEXT NOT NULL
);
CREATE INDEX dead_letters_queue_idx ON {schema}.dead_letters (queue, id);

-- A key whose tasks must not flow: its head waits for a retry or is on probation, or a person or a
-- handler paused it, or its head died and the queue parks.
CREATE TABLE {schema}.key_holds (
    key_space_id  INT NOT NULL,
    tenant        TEXT NOT NULL,
    partition_key TEXT NOT NULL,
    lane          INT NOT NULL,
    why           TEXT NOT NULL CHECK (why IN ('retry', 'probation', 'paused', 'parked')),
    until         TIMESTAMPTZ,
    task_id       BIGINT,
    reason        TEXT,
    since         TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (key_space_id, tenant, partition_key, why)
);
CREATE INDEX key_holds_lane_idx ON {schema}.key_holds (lane);

-- Which buckets of a key space a worker may claim from. A claim locks its row, a move changes it.
CREATE TABLE {schema}.bucket_owners (
    key_space_id INT NOT NULL,
    worker_id    UUID NOT NULL,
    epoch        BIGINT NOT NULL,
    buckets      SMALLINT[] NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (key_space_id, worker_id)
) WITH (fillfactor = 50);

ALTER TABLE {schema}.worker_info ADD COLUMN queues TEXT[] NOT NULL DEFAULT '{}';
