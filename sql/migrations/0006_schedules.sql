-- Tasks that the clock enqueues. A tick fires exactly once: the transaction that enqueues its task
-- also moves next_at on from it, and no two firings of one tick can be recorded.
CREATE TABLE {schema}.schedules (
    name         TEXT PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
    cron         TEXT NOT NULL,
    time_zone    TEXT NOT NULL,
    queue        TEXT NOT NULL REFERENCES {schema}.queues (name),
    payload      TEXT NOT NULL,
    options      JSONB NOT NULL DEFAULT '{}',
    catch_up     TEXT NOT NULL CHECK (catch_up IN ('skip', 'once', 'all')),
    catch_up_max INT NOT NULL CHECK (catch_up_max BETWEEN 1 AND 10000),
    -- No finer than the programs that compare it. NULL when there is no further tick.
    next_at      TIMESTAMPTZ(3) CHECK (isfinite(next_at)),
    last_at      TIMESTAMPTZ(3),
    last_task_id BIGINT,
    missed       BIGINT NOT NULL DEFAULT 0,
    -- A schedule that cannot fire waits, keeps its tick, and says why.
    failures     INT NOT NULL DEFAULT 0,
    retry_at     TIMESTAMPTZ,
    last_error   TEXT,
    paused_at    TIMESTAMPTZ,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX schedules_due_idx ON {schema}.schedules ((GREATEST(next_at, retry_at)))
    WHERE next_at IS NOT NULL AND paused_at IS NULL;

-- The latest firings of each schedule; the firing itself removes older ones.
CREATE TABLE {schema}.schedule_firings (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     TEXT NOT NULL REFERENCES {schema}.schedules (name) ON DELETE CASCADE,
    kind     TEXT NOT NULL CHECK (kind IN ('tick', 'run-now')),
    tick     TIMESTAMPTZ(3) NOT NULL,
    task_id  BIGINT NOT NULL,
    fired_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE UNIQUE INDEX schedule_firings_tick_idx ON {schema}.schedule_firings (name, tick)
    WHERE kind = 'tick';
CREATE INDEX schedule_firings_name_idx ON {schema}.schedule_firings (name, id);
CREATE INDEX schedule_firings_task_idx ON {schema}.schedule_firings (task_id);
