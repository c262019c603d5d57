-- Webhooks: whoever asked is told when a task has ended. docs/how-to/receive-webhooks.md.

-- Where messages go, and what signs them. The one called "default" has no address: it signs for tasks
-- that name an address of their own. Secrets are kept as they are, because they must sign.
CREATE TABLE {schema}.webhook_endpoints (
    tenant           TEXT NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    id               TEXT NOT NULL CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$'),
    url              TEXT CHECK (octet_length(url) BETWEEN 1 AND 1024),
    description      TEXT CHECK (octet_length(description) BETWEEN 1 AND 1024),
    format           TEXT NOT NULL CHECK (format IN ('standard', 'codeq')),
    -- The newest first. A second one also signs, until then.
    secrets          TEXT[] NOT NULL CHECK (cardinality(secrets) BETWEEN 1 AND 2),
    old_secret_until TIMESTAMPTZ,
    rotated_at       TIMESTAMPTZ,
    disabled_at      TIMESTAMPTZ,
    disabled_reason  TEXT,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at       TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant, id),
    CHECK ((url IS NULL) = (id = 'default')),
    CHECK ((cardinality(secrets) = 2) = (old_secret_until IS NOT NULL)),
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

-- One message for one end of a task. It waits, is claimed by a sender, and is delivered or dead. Every
-- change compares generation and claim id, as those of tasks do. next_at is when a pending one is due,
-- and when the lease of a running one ends: from then on another sender may have it.
CREATE TABLE {schema}.webhook_deliveries (
    number       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           UUID NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- What the receiver sees.
    tenant       TEXT NOT NULL,
    endpoint     TEXT NOT NULL,
    url          TEXT, -- Of a task that named one: the endpoint is "default".
    lane         TEXT NOT NULL, -- Those of one lane may wait for each other, others not.
    task_id      BIGINT NOT NULL,
    type         TEXT NOT NULL
                 CHECK (type IN ('task.completed', 'task.failed', 'task.dead', 'task.cancelled')),
    at           TIMESTAMPTZ NOT NULL,
    task         JSONB NOT NULL,
    result       TEXT,
    reason       TEXT,
    state        TEXT NOT NULL DEFAULT 'pending'
                 CHECK (state IN ('pending', 'running', 'delivered', 'dead')),
    attempt      INT NOT NULL DEFAULT 0,
    generation   INT NOT NULL DEFAULT 0,
    claim_id     UUID,
    next_at      TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    last_status  INT,
    last_error   TEXT,
    cause        TEXT CHECK (cause IN ('attempts_exhausted', 'refused', 'gone', 'no_endpoint',
                                       'disabled')),
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    ended_at     TIMESTAMPTZ,
    CHECK ((claim_id IS NOT NULL) = (state = 'running')),
    CHECK ((cause IS NOT NULL) = (state = 'dead')),
    CHECK ((ended_at IS NOT NULL) = (state IN ('delivered', 'dead')))
);
CREATE INDEX webhook_deliveries_lane_idx ON {schema}.webhook_deliveries (lane, next_at)
    WHERE state IN ('pending', 'running');
CREATE INDEX webhook_deliveries_tenant_idx ON {schema}.webhook_deliveries (tenant, number);
CREATE INDEX webhook_deliveries_task_idx ON {schema}.webhook_deliveries (task_id);
CREATE INDEX webhook_deliveries_ended_idx ON {schema}.webhook_deliveries (ended_at)
    WHERE ended_at IS NOT NULL;

-- What became of each claim of a delivery; at most one row, because a claim has one generation.
CREATE TABLE {schema}.webhook_attempts (
    delivery    BIGINT NOT NULL REFERENCES {schema}.webhook_deliveries (number) ON DELETE CASCADE,
    generation  INT NOT NULL,
    attempt     INT NOT NULL,
    at          TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    status      INT,   -- Of the answer, or
    error       TEXT,  -- the code of why there is none.
    message     TEXT,
    duration_ms INT,
    answer      TEXT,  -- How it began.
    PRIMARY KEY (delivery, generation)
);

-- Every end of a task is a row that is added to history or to the dead letters, in one of several
-- statements, some of them in transactions of users. A trigger sees them all, and none twice. Its
-- condition is all that other tasks pay. It must never fail: the end of the task would fail with it.
-- So nothing here is cast, and what is too large or makes no sense is for the sender to refuse; and
-- it writes as the owner of the tables, because whoever ends a task may be anybody who can do that.
CREATE FUNCTION {schema}.add_delivery(
    hook TEXT, tenant TEXT, task_id BIGINT, state TEXT, at TIMESTAMPTZ, task JSONB, result TEXT,
    reason TEXT
) RETURNS VOID LANGUAGE sql AS
$$
    INSERT INTO {schema}.webhook_deliveries
           (tenant, endpoint, url, lane, task_id, type, at, task, result, reason)
    SELECT tenant,
           CASE WHEN is_url THEN 'default' ELSE left(hook, 64) END,
           CASE WHEN is_url THEN hook END,
           tenant || chr(31) ||
             CASE WHEN is_url THEN left(lower(substring(hook FROM '^[^/]*//[^/?#]*')), 300)
                  ELSE left(hook, 64) END,
           task_id, 'task.' || state, at,
           jsonb_strip_nulls(task || jsonb_build_object(
             'resultBytes', CASE WHEN octet_length(result) > 262144
                                 THEN octet_length(result) END)),
           CASE WHEN octet_length(result) <= 262144 THEN result END,
           left(reason, 10000)
      FROM (SELECT hook ~* '^https?://') AS one(is_url)
     WHERE hook <> ''
$$;

CREATE FUNCTION {schema}.deliver_history() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.add_delivery(
        NEW.options ->> 'webhook', NEW.tenant, NEW.id, NEW.state, NEW.finished_at,
        jsonb_build_object(
            'queue', NEW.queue, 'kind', NEW.kind, 'partitionKey', NEW.partition_key,
            'priority', NEW.priority, 'attempt', NEW.attempt, 'maxAttempts', NEW.max_attempts,
            'createdAt', NEW.created_at, 'traceParent', NEW.options -> 'traceParent',
            'traceState', NEW.options -> 'traceState'),
        NEW.result, NEW.reason);
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_deliver AFTER INSERT ON {schema}.task_history
    FOR EACH ROW WHEN (NEW.options ? 'webhook') EXECUTE FUNCTION {schema}.deliver_history();

CREATE FUNCTION {schema}.deliver_dead() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.add_delivery(
        NEW.options ->> 'webhook', NEW.tenant, NEW.id, 'dead', NEW.dead_at,
        jsonb_build_object(
            'queue', NEW.queue, 'kind', NEW.kind, 'partitionKey', NEW.partition_key,
            'priority', NEW.priority, 'attempt', NEW.attempt, 'maxAttempts', NEW.max_attempts,
            'createdAt', NEW.created_at, 'traceParent', NEW.options -> 'traceParent',
            'traceState', NEW.options -> 'traceState', 'cause', NEW.cause),
        NULL, NEW.reason);
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_deliver AFTER INSERT ON {schema}.dead_letters
    FOR EACH ROW WHEN (NEW.options ? 'webhook') EXECUTE FUNCTION {schema}.deliver_dead();
