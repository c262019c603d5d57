-- What other languages and plain SQL need of the task side, and the care of daily partitions.

-- The bucket of a key: FNV-1a over UTF-8 with a final mix, modulo 360. Golden values are in
-- docs/reference/tables.md; src/cluster/ring.ts computes the same.
CREATE FUNCTION {schema}.multiply_32(a BIGINT, b BIGINT) RETURNS BIGINT
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT ((((a >> 16) * b & 65535) << 16) + (a & 65535) * b) & 4294967295 $$;

CREATE FUNCTION {schema}.bucket_of(key TEXT) RETURNS SMALLINT
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS
$$
DECLARE
    hash  BIGINT := 2166136261;
    bytes BYTEA := convert_to(key, 'UTF8');
BEGIN
    FOR place IN 0 .. length(bytes) - 1 LOOP
        hash := ((hash # get_byte(bytes, place)) * 16777619) & 4294967295;
    END LOOP;
    hash := {schema}.multiply_32(hash # (hash >> 16), 2246822507);
    hash := {schema}.multiply_32(hash # (hash >> 13), 3266489909);
    RETURN (hash # (hash >> 16)) % 360;
END
$$;

-- Enqueues one task in the caller's transaction and gives its id. Refuses what the library refuses.
CREATE FUNCTION {schema}.enqueue(
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
    SELECT one.key_space_id, one.settings INTO known
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

-- For effects of your own that must stand or fall with the lease: locks the row of the task, or of
-- its pack, to the end of your transaction, so that nobody takes it meanwhile, or raises.
CREATE FUNCTION {schema}.assert_lease(task_id BIGINT, generation INT, claim_id UUID) RETURNS VOID
LANGUAGE plpgsql AS
$$
#variable_conflict use_variable
BEGIN
    PERFORM 1 FROM {schema}.tasks AS task
      WHERE task.id = task_id
        AND task.lease_generation = generation
        AND task.claim_id = claim_id
        FOR SHARE;
    IF NOT FOUND AND generation = 1 THEN
        -- For update: two tasks of it that share a lock could not both go on to complete.
        PERFORM 1 FROM {schema}.task_packs AS pack
          WHERE int8range(pack.id, pack.last_id, '[]') @> task_id
            AND pack.claim_id = claim_id
            AND task_id = ANY (pack.ids)
            FOR UPDATE;
        IF NOT FOUND THEN -- The pack was opened between the two statements.
            PERFORM 1 FROM {schema}.tasks AS task
              WHERE task.id = task_id
                AND task.lease_generation = generation
                AND task.claim_id = claim_id
                FOR SHARE;
        END IF;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % on task % is no longer held', generation, task_id
            USING ERRCODE = 'TML01', HINT = 'drop the work: another worker has the task';
    END IF;
END
$$;

CREATE FUNCTION {schema}.make_history_partitions(days_ahead INT) RETURNS INT
LANGUAGE plpgsql AS
$$
DECLARE
    parent TEXT;
    name   TEXT;
    day    DATE;
    made   INT := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['task_history', 'task_failures'] LOOP
        FOR ahead IN 0 .. days_ahead LOOP
            day := (NOW() AT TIME ZONE 'UTC')::date + ahead;
            name := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('{schema}.' || name) IS NOT NULL;
            BEGIN
                EXECUTE format(
                    'CREATE TABLE {schema}.%I PARTITION OF {schema}.%I FOR VALUES FROM (%L) TO (%L)
                     WITH (autovacuum_vacuum_insert_threshold = -1)',
                    name, parent, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
                made := made + 1;
            EXCEPTION
                -- The default partition has rows of that day: they stay there until they are old.
                WHEN check_violation OR duplicate_table THEN NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

CREATE FUNCTION {schema}.drop_history_before(days_kept INT) RETURNS INT
LANGUAGE plpgsql AS
$$
DECLARE
    edge    DATE := (NOW() AT TIME ZONE 'UTC')::date - days_kept;
    old     RECORD;
    dropped INT := 0;
BEGIN
    FOR old IN
        SELECT child.relname AS name, parent.relname AS parent
          FROM pg_inherits AS link
          JOIN pg_class AS child ON child.oid = link.inhrelid
          JOIN pg_class AS parent ON parent.oid = link.inhparent
         WHERE parent.oid IN ('{schema}.task_history'::regclass,
                              '{schema}.task_failures'::regclass)
           AND child.relname ~ '_\d{8}$'
           AND to_date(right(child.relname, 8), 'YYYYMMDD') < edge
    LOOP
        IF old.parent = 'task_history' THEN
            EXECUTE format(
                'UPDATE {schema}.task_idempotency AS known SET end_state = ended.state
                   FROM {schema}.%I AS ended
                  WHERE ended.id = known.task_id AND known.expires_at > NOW()', old.name);
        END IF;
        EXECUTE format('DROP TABLE {schema}.%I', old.name);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM {schema}.task_history_default WHERE finished_at < edge;
    DELETE FROM {schema}.task_failures_default WHERE at < edge;
    RETURN dropped;
END
$$;

SELECT {schema}.make_history_partitions(1);
