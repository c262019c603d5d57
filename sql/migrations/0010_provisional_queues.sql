-- Queues that a producer named before anybody defined them. Their settings are the defaults, and they
-- have a key space of their own under a name that no definition can have. A definition takes them over
-- with its own settings and key space; once something keyed was enqueued, only if the name of that key
-- space is free, which the space then gets.
ALTER TABLE {schema}.queues
    ADD COLUMN is_provisional BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN is_keyed       BOOLEAN NOT NULL DEFAULT FALSE, -- Kept for provisional ones only.
    ADD COLUMN introduced_by  TEXT; -- The tenant that named it; NULL for others.
CREATE INDEX queues_introduced_idx ON {schema}.queues (introduced_by) WHERE is_provisional;

-- As it was, but for the key space of a queue that is not defined yet: whoever enqueues the first task
-- with a key settles it, and a definition waits for the row.
CREATE OR REPLACE FUNCTION {schema}.enqueue(
    queue           TEXT,
    payload         JSONB,
    kind            TEXT DEFAULT NULL,
    priority        INT DEFAULT NULL,
    partition_key   TEXT DEFAULT NULL,
    run_at          TIMESTAMPTZ DEFAULT NULL,
    delay_seconds   FLOAT8 DEFAULT NULL,
    max_attempts    INT DEFAULT NULL,
    idempotency_key TEXT DEFAULT NULL,
    tenant          TEXT DEFAULT 'default',
    options         JSONB DEFAULT NULL
) RETURNS BIGINT LANGUAGE plpgsql AS
$$
#variable_conflict use_variable
DECLARE
    known   RECORD;
    task_id BIGINT;
    place   INT;
    bucket  SMALLINT;
    body    TEXT := payload::text;
    due_at  TIMESTAMPTZ;
    hashed  TEXT;
    found_hash TEXT;
BEGIN
    SELECT one.key_space_id, one.settings, one.is_provisional AND NOT one.is_keyed AS is_open
      INTO known
      FROM {schema}.queues AS one WHERE one.name = queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue "%"', queue USING ERRCODE = '22023',
            HINT = 'a worker that handles it, or an enqueue with its definition, registers it';
    END IF;
    IF body IS NULL THEN
        RAISE EXCEPTION 'payload must not be NULL; use ''null''::jsonb' USING ERRCODE = '22004';
    END IF;
    IF octet_length(body) > COALESCE((known.settings ->> 'payloadBytesMax')::int, 1048576) THEN
        RAISE EXCEPTION 'the payload has % bytes, over the limit of queue "%"',
            octet_length(body), queue USING ERRCODE = '22023';
    END IF;
    priority := COALESCE(priority, (known.settings ->> 'priority')::int, 5);
    IF priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority must be from 0 to 9, not %', priority USING ERRCODE = '22023';
    END IF;
    IF run_at IS NOT NULL AND delay_seconds IS NOT NULL THEN
        RAISE EXCEPTION 'give run_at or delay_seconds, not both' USING ERRCODE = '22023';
    END IF;
    IF delay_seconds < 0 THEN
        RAISE EXCEPTION 'delay_seconds must not be negative' USING ERRCODE = '22023';
    END IF;
    IF max_attempts < 1 THEN
        RAISE EXCEPTION 'max_attempts must be at least 1' USING ERRCODE = '22023';
    END IF;
    IF partition_key = '' OR octet_length(partition_key) > 1024 OR partition_key ~ '[\x1d-\x1f]'
    THEN
        RAISE EXCEPTION 'partition_key must have 1 to 1024 bytes and no U+001D to U+001F'
            USING ERRCODE = '22023';
    END IF;
    IF kind = '' OR octet_length(kind) > 200 OR kind ~ '[\x1d-\x1f]' THEN
        RAISE EXCEPTION 'kind must have 1 to 200 bytes' USING ERRCODE = '22023';
    END IF;
    IF idempotency_key = '' OR octet_length(idempotency_key) > 1024 THEN
        RAISE EXCEPTION 'idempotency_key must have 1 to 1024 bytes' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(options) <> 'object' OR options ? 'backoff' OR options ? 'timeoutSeconds' THEN
        RAISE EXCEPTION 'options must be an object; backoff and timeout are set by the queue'
            USING ERRCODE = '22023';
    END IF;
    IF tenant IS NULL OR tenant = '' OR octet_length(tenant) > 200 OR tenant ~ '[\x1d-\x1f]' THEN
        RAISE EXCEPTION 'tenant must have 1 to 200 bytes' USING ERRCODE = '22023';
    END IF;

    PERFORM pg_current_xact_id(); -- Before any number is drawn: floors of lanes rest on it.
    task_id := nextval('{schema}.task_numbers');
    IF idempotency_key IS NOT NULL THEN
        hashed := 'sql:' || md5(jsonb_build_array(queue, body, kind, priority, partition_key,
                                                  run_at, delay_seconds, max_attempts,
                                                  options)::text);
        INSERT INTO {schema}.task_idempotency AS old (tenant, key, hash, task_id, expires_at)
        VALUES (tenant, idempotency_key, hashed, task_id,
                NOW() + make_interval(secs => COALESCE(
                    (known.settings ->> 'idempotencySeconds')::float8, 86400)))
            ON CONFLICT ON CONSTRAINT task_idempotency_pkey DO UPDATE
           SET hash = excluded.hash, task_id = excluded.task_id, end_state = NULL,
               expires_at = excluded.expires_at, created_at = NOW()
         WHERE old.expires_at <= NOW();
        IF NOT FOUND THEN
            SELECT old.task_id, old.hash INTO task_id, found_hash
              FROM {schema}.task_idempotency AS old
             WHERE old.tenant = tenant AND old.key = idempotency_key;
            IF found_hash IS DISTINCT FROM hashed THEN
                RAISE EXCEPTION 'idempotency key "%" was used for another task', idempotency_key
                    USING ERRCODE = '23505';
            END IF;
            RETURN task_id;
        END IF;
    END IF;

    IF partition_key IS NULL THEN
        FOR attempt IN 1 .. 2 LOOP
            SELECT line.lane INTO place FROM {schema}.task_lanes AS line
             WHERE line.queue = queue AND line.tenant = tenant AND line.priority = priority;
            EXIT WHEN FOUND;
            INSERT INTO {schema}.task_lanes (queue, tenant, priority)
            VALUES (queue, tenant, priority), (queue, tenant, -1)
                ON CONFLICT DO NOTHING;
        END LOOP;
    ELSE
        IF known.is_open THEN
            UPDATE {schema}.queues AS one SET is_keyed = TRUE
             WHERE one.name = queue AND one.is_provisional AND NOT one.is_keyed;
            SELECT one.key_space_id INTO known.key_space_id
              FROM {schema}.queues AS one WHERE one.name = queue;
        END IF;
        bucket := {schema}.bucket_of(partition_key);
        place := -(known.key_space_id * 360 + bucket + 1);
        IF (known.settings ->> 'serialize')::boolean THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(partition_key, known.key_space_id));
        END IF;
    END IF;
    due_at := COALESCE(run_at, NOW() + make_interval(secs => delay_seconds), NOW());
    INSERT INTO {schema}.tasks
           (id, lane, queue, tenant, kind, priority, max_attempts, run_at, state, claim_order,
            partition_key, partition_bucket, payload, options)
    SELECT task_id, place, queue, tenant, kind, priority,
           COALESCE(max_attempts, (known.settings ->> 'maxAttempts')::int, 5), due_at,
           CASE WHEN due_at > NOW() THEN 'scheduled' ELSE 'pending' END,
           CASE WHEN due_at > NOW() THEN NULL
                WHEN idempotency_key IS NULL THEN task_id
                ELSE nextval('{schema}.task_numbers') END,
           partition_key, bucket, body, options;
    INSERT INTO {schema}.task_tally (queue, priority, amount) VALUES (queue, priority, 1);
    PERFORM pg_notify('{tasks_channel}', '');
    RETURN task_id;
END
$$;
