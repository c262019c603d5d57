-- Keys belong to a tenant: docs/adr/0010-keys-of-tenants.md. The lane of a bucket holds tasks of one
-- tenant, so that a server of remote workers can own the keys of those tenants who have some at it.

-- What is being enqueued or claimed ends before, and nothing more comes until lanes have moved.
LOCK TABLE {schema}.tasks, {schema}.task_packs IN EXCLUSIVE MODE;

-- The space that a queue names is that of the tenant "default". The others have one each, made with
-- their first keyed task and never removed: producers remember it. Lanes have numbers for so many.
ALTER TABLE {schema}.key_spaces
    ALTER COLUMN name DROP NOT NULL,
    ALTER COLUMN id SET MAXVALUE 5965231,
    ADD COLUMN base_id INT REFERENCES {schema}.key_spaces (id),
    ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default'
        CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    ADD CHECK ((base_id IS NULL) = (name IS NOT NULL)),
    ADD CHECK ((base_id IS NULL) = (tenant = 'default')),
    ADD CONSTRAINT key_spaces_tenant_key UNIQUE (base_id, tenant);

-- Of a worker that runs tasks of some tenants only: a server, for those whose workers order at it.
-- Others run the queues in worker_info for everybody. Written by the worker itself.
CREATE TABLE {schema}.worker_tenants (
    worker_id  UUID NOT NULL REFERENCES {schema}.worker_info (worker_id) ON DELETE CASCADE,
    tenant     TEXT NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    queues     TEXT[] NOT NULL CHECK (cardinality(queues) > 0),
    idle       TEXT[] NOT NULL CHECK (idle <@ queues), -- Of these nobody has asked for a while.
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (worker_id, tenant)
);
ALTER TABLE {schema}.worker_info DROP COLUMN owns_keys;

-- What was enqueued before waited in the spaces of the tenant "default".
INSERT INTO {schema}.key_spaces (base_id, tenant)
SELECT queue.key_space_id, one.tenant
  FROM (SELECT tenant, queue FROM {schema}.tasks WHERE partition_key IS NOT NULL
         UNION
        SELECT tenant, queue FROM {schema}.task_packs WHERE buckets IS NOT NULL
         UNION
        SELECT tenant, queue FROM {schema}.task_history WHERE partition_key IS NOT NULL
         UNION
        SELECT tenant, queue FROM {schema}.dead_letters WHERE partition_key IS NOT NULL) AS one
  JOIN {schema}.queues AS queue ON queue.name = one.queue
 WHERE one.tenant <> 'default'
 UNION
SELECT key_space_id, tenant FROM {schema}.key_holds WHERE tenant <> 'default';
UPDATE {schema}.tasks AS task
   SET lane = -(space.id * 360 + task.partition_bucket + 1)
  FROM {schema}.key_spaces AS space
 WHERE task.partition_key IS NOT NULL
   AND space.base_id = (-task.lane - 1) / 360
   AND space.tenant = task.tenant;
UPDATE {schema}.dead_letters AS dead
   SET lane = -(space.id * 360 + dead.partition_bucket + 1)
  FROM {schema}.key_spaces AS space
 WHERE dead.partition_key IS NOT NULL
   AND space.base_id = (-dead.lane - 1) / 360
   AND space.tenant = dead.tenant;
UPDATE {schema}.key_holds AS hold
   SET key_space_id = space.id, lane = -(space.id * 360 + (-hold.lane - 1) % 360 + 1)
  FROM {schema}.key_spaces AS space
 WHERE space.base_id = hold.key_space_id
   AND space.tenant = hold.tenant;
UPDATE {schema}.task_packs AS pack
   SET lane = -(space.id + 1)
  FROM {schema}.key_spaces AS space
 WHERE pack.buckets IS NOT NULL
   AND space.base_id = -pack.lane - 1
   AND space.tenant = pack.tenant;
-- By these lanes the next owner finds what is held.
UPDATE {schema}.task_claims AS claim
   SET key_lanes = claim.key_lanes
       || ARRAY(SELECT task.lane FROM {schema}.tasks AS task
                 WHERE task.id = ANY (claim.task_ids) AND task.lane < 0)
       || ARRAY(SELECT (pack.lane + 1) * 360 - one.bucket - 1
                  FROM {schema}.task_packs AS pack
                 CROSS JOIN LATERAL unnest(pack.buckets) AS one(bucket)
                 WHERE pack.id = ANY (claim.pack_ids))
 WHERE claim.key_lanes IS NOT NULL
   AND EXISTS (SELECT FROM {schema}.key_spaces WHERE base_id IS NOT NULL);

-- The space of the tenant's keys, made if it is not there; then the leader is told. Where it is made
-- in a transaction that is rolled back, the tasks in it are gone with it.
CREATE FUNCTION {schema}.key_space_of(base INT, owner TEXT) RETURNS INT LANGUAGE plpgsql AS
$$
DECLARE
    known INT;
BEGIN
    IF owner = 'default' THEN
        RETURN base;
    END IF;
    FOR attempt IN 1 .. 2 LOOP
        SELECT one.id INTO known FROM {schema}.key_spaces AS one
         WHERE one.base_id = base AND one.tenant = owner;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.key_spaces (base_id, tenant) VALUES (base, owner)
            ON CONFLICT DO NOTHING
        RETURNING id INTO known;
        IF FOUND THEN
            PERFORM pg_notify('{changes_channel}', '');
            EXIT;
        END IF;
    END LOOP;
    RETURN known;
END
$$;

-- As it was, but for the key space of a tenant.
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
        known.key_space_id := {schema}.key_space_of(known.key_space_id, tenant);
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

-- As it was, and behind it only the tenant's own key spaces, and which of its queues have workers.
CREATE OR REPLACE FUNCTION {schema}.raise_tenant_wall(role_name TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE plpgsql AS
$$
DECLARE
    wall   TEXT := COALESCE(
        role_name,
        (SELECT value FROM {schema}.settings WHERE key = 'tenant_role'),
        'tidemill_tenant_' || substr(md5(current_database() || ' {schema}'), 1, 16));
    mine   TEXT := 'tenant = current_setting(''tidemill.tenant'', TRUE)';
    -- Its task can be seen, which is for the policies of the tables in which that may be.
    known  TEXT := 'EXISTS (SELECT FROM {schema}.tasks AS one WHERE one.id = task_id)'
        || ' OR EXISTS (SELECT FROM {schema}.task_history AS one WHERE one.id = task_id)'
        || ' OR EXISTS (SELECT FROM {schema}.dead_letters AS one WHERE one.id = task_id)';
    walled TEXT;
    space  TEXT;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wall) THEN
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wall);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- Somebody else just made it.
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = wall
                  AND (rolsuper OR rolbypassrls OR rolcanlogin OR rolcreaterole)) THEN
        RAISE EXCEPTION 'role "%" may do too much to be a wall', wall
            USING HINT = 'name one that is NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE';
    END IF;
    IF current_setting('server_version_num')::int >= 160000 THEN
        IF NOT pg_has_role(current_user, wall, 'SET') THEN
            EXECUTE format('GRANT %I TO CURRENT_USER WITH INHERIT FALSE, SET TRUE', wall);
        END IF;
    ELSIF NOT pg_has_role(current_user, wall, 'MEMBER') THEN
        EXECUTE format('GRANT %I TO CURRENT_USER', wall);
    END IF;

    FOREACH walled IN ARRAY ARRAY['tasks', 'task_packs', 'task_history', 'task_failures',
                                  'dead_letters', 'key_holds', 'task_idempotency', 'task_lanes',
                                  'schedules', 'schedule_firings', 'topic_policies',
                                  'key_spaces', 'worker_tenants'] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_everybody ON {schema}.%I', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_tenant ON {schema}.%I', walled);
        EXECUTE format('CREATE POLICY tidemill_everybody ON {schema}.%I USING (TRUE)', walled);
        EXECUTE format(
            'CREATE POLICY tidemill_tenant ON {schema}.%I AS RESTRICTIVE TO %I USING (%s)',
            walled, wall, CASE walled WHEN 'task_failures' THEN known
                                      WHEN 'key_spaces' THEN 'base_id IS NULL OR ' || mine
                                      ELSE mine END);
    END LOOP;

    FOR space IN
        SELECT DISTINCT relnamespace::regnamespace::text FROM pg_class
         WHERE oid IN ('{schema}.tasks'::regclass, '{worker_nodes}'::regclass)
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', space, wall);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SEQUENCE {schema}.task_numbers TO %I', wall);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.tasks, {schema}.task_packs,
                    {schema}.task_idempotency, {schema}.schedules, {schema}.topic_policies
                    TO %I', wall);
    EXECUTE format('GRANT SELECT, UPDATE, DELETE ON {schema}.dead_letters, {schema}.key_holds
                    TO %I', wall);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON {schema}.task_history,
                    {schema}.schedule_firings TO %I', wall);
    EXECUTE format('GRANT SELECT ON {schema}.task_failures, {schema}.task_lanes, {schema}.queues,
                    {schema}.key_spaces, {schema}.bucket_owners, {schema}.worker_info,
                    {schema}.worker_tenants, {schema}.limit_slots, {schema}.limit_starts,
                    {worker_nodes} TO %I', wall);
    EXECUTE format('GRANT SELECT, UPDATE ON {schema}.cluster_changes TO %I', wall);
    EXECUTE format('GRANT INSERT ON {schema}.task_tally TO %I', wall);
    INSERT INTO {schema}.settings AS old (key, value) VALUES ('tenant_role', wall)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    RETURN wall;
END
$$;

DO
$$
BEGIN
    IF EXISTS (SELECT FROM {schema}.settings WHERE key = 'tenant_role') THEN
        PERFORM {schema}.raise_tenant_wall();
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'the second wall between tenants must be raised again: %', SQLERRM
            USING HINT = 'see "Second wall" in docs/reference/auth.md';
END
$$;
