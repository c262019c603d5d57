-- The feed: what becomes of tasks, and of the cluster, for whoever watches. docs/adr/0013-feed.md says
-- why it is kept in this way.

-- Until when somebody listens, in milliseconds since 1970. A sequence, because its value is no matter of
-- snapshots: whoever asks sees what was set before, whatever its transaction has seen.
CREATE SEQUENCE {schema}.feed_listening AS BIGINT CACHE 1 NO CYCLE;

-- What one statement changed of tasks that have all of this in common, written by that statement while
-- somebody listens. The tasks are `ids`, or when that is NULL all numbers from `first_id` to `last_id`.
-- Changes of the cluster have `data` instead. A crash empties it, as it may take back claims that were
-- told: then nobody can go on from where it was.
CREATE UNLOGGED TABLE {schema}.feed_changes (
    position  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    kind      TEXT NOT NULL DEFAULT 'task'
              CHECK (kind IN ('task', 'consumer', 'worker', 'ring', 'gap')),
    attempt   INT,
    first_id  BIGINT,
    last_id   BIGINT,
    worker_id UUID,
    tenant    TEXT,
    queue     TEXT,
    state     TEXT,
    reason    TEXT,
    ids       BIGINT[],
    data      JSONB,
    CHECK ((kind = 'task') = (data IS NULL)),
    CHECK (kind <> 'task' OR ids IS NOT NULL OR first_id IS NOT NULL)
) WITH (
    autovacuum_vacuum_scale_factor = 0.1,
    -- To give pages back takes a lock that every statement on tasks would wait for.
    vacuum_truncate = off, toast.vacuum_truncate = off
);
ALTER TABLE {schema}.feed_changes ALTER COLUMN ids SET STORAGE EXTERNAL;

-- One row: a time without a break in which somebody listened. Another one begins when nobody did for a
-- moment, and after a crash.
CREATE UNLOGGED TABLE {schema}.feed_era (
    single  BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single),
    era     TEXT NOT NULL,
    floor   BIGINT NOT NULL, -- What is at or below it cannot be read.
    settled BIGINT,          -- No change after it is missing. NULL until that is proven.
    until   BIGINT NOT NULL  -- What the flag was set to in the transaction that wrote this.
) WITH (fillfactor = 50);

-- Listens for so long, and tells in which era. `mine` and `reached` are the era that the caller knows
-- and how far it has proven that one. As the owner, because nobody else may set the flag; for those who
-- may change the row of the era.
CREATE FUNCTION {schema}.feed_listen(
    seconds FLOAT8, mine TEXT, reached BIGINT, OUT era TEXT, OUT settled BIGINT, OUT floor BIGINT
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
#variable_conflict use_column
DECLARE
    found   BIGINT;
    next    BIGINT;
    present BIGINT := date_part('epoch', clock_timestamp()) * 1000;
BEGIN
    IF NOT has_table_privilege(session_user, '{schema}.feed_era', 'UPDATE') THEN
        RAISE EXCEPTION 'role "%" may not listen to the feed', session_user
            USING ERRCODE = '42501', HINT = 'it needs UPDATE on the table feed_era';
    END IF;
    LOCK TABLE {schema}.feed_era IN SHARE ROW EXCLUSIVE MODE; -- One after the other.
    SELECT last_value INTO found FROM {schema}.feed_listening;
    next := GREATEST(found, present + (LEAST(seconds, 60) * 1000)::bigint);
    PERFORM setval('{schema}.feed_listening', next);
    -- The time is asked once more after it was set: who asked before then found it not over.
    -- What is set stays set when its transaction is rolled back: then the row knows nothing of it, and
    -- nobody knows whether there was a break before.
    DELETE FROM {schema}.feed_era AS one
     WHERE found <= date_part('epoch', clock_timestamp()) * 1000 OR one.until <> found;
    INSERT INTO {schema}.feed_era (era, until, floor)
    VALUES (substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), next,
            COALESCE(pg_sequence_last_value('{schema}.feed_changes_position_seq'), 0))
        ON CONFLICT DO NOTHING;
    UPDATE {schema}.feed_era AS one
       SET until = next,
           settled = CASE WHEN one.era = mine THEN GREATEST(one.settled, reached)
                          ELSE one.settled END;
    SELECT one.era, one.settled, one.floor INTO era, settled, floor FROM {schema}.feed_era AS one;
END
$$;

-- What rarely changes, and concerns those who look after the cluster.
CREATE FUNCTION {schema}.feed_note(about TEXT, what JSONB) RETURNS VOID LANGUAGE sql AS
$$
    INSERT INTO {schema}.feed_changes (kind, data)
    SELECT about, jsonb_strip_nulls(what)
     WHERE (SELECT last_value > date_part('epoch', clock_timestamp()) * 1000
              FROM {schema}.feed_listening)
$$;

CREATE FUNCTION {schema}.feed_worker() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.feed_note('worker', jsonb_build_object(
        'id', NEW.worker_id, 'status', NEW.status, 'host', left(NEW.host, 255), 'pid', NEW.pid,
        'version', left(NEW.version, 100)));
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed_joined AFTER INSERT ON {schema}.worker_info
    FOR EACH ROW EXECUTE FUNCTION {schema}.feed_worker();
CREATE TRIGGER tidemill_feed AFTER UPDATE OF status ON {schema}.worker_info
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION {schema}.feed_worker();

CREATE FUNCTION {schema}.feed_consumer() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}.feed_note('consumer', jsonb_build_object(
            'name', OLD.consumer_name, 'state', 'running'));
    ELSE
        PERFORM {schema}.feed_note('consumer', jsonb_build_object(
            'name', NEW.consumer_name, 'state', NEW.state, 'position', NEW.position::text,
            'reason', left(COALESCE(NEW.reason, NEW.error), 1000)));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed AFTER INSERT OR UPDATE OR DELETE ON {schema}.consumer_states
    FOR EACH ROW EXECUTE FUNCTION {schema}.feed_consumer();

CREATE FUNCTION {schema}.feed_assignment() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.feed_note('consumer', jsonb_build_object(
        'name', NEW.consumer_name, 'state', CASE WHEN NEW.worker_id IS NULL THEN 'unassigned'
                                                 ELSE 'assigned' END,
        'worker', NEW.worker_id));
    RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.feed_ring() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
DECLARE
    one RECORD;
BEGIN
    IF TG_OP = 'DELETE' THEN one := OLD; ELSE one := NEW; END IF;
    PERFORM {schema}.feed_note('ring', jsonb_build_object(
        'keySpace', (SELECT COALESCE(base.name, space.name)
                       FROM {schema}.key_spaces AS space
                       LEFT JOIN {schema}.key_spaces AS base ON base.id = space.base_id
                      WHERE space.id = one.key_space_id),
        'tenant', (SELECT space.tenant FROM {schema}.key_spaces AS space
                    WHERE space.id = one.key_space_id),
        'worker', one.worker_id, 'epoch', one.epoch::text,
        'buckets', CASE WHEN TG_OP = 'DELETE' THEN 0 ELSE cardinality(one.buckets) END));
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed_owner AFTER INSERT OR DELETE ON {schema}.bucket_owners
    FOR EACH ROW EXECUTE FUNCTION {schema}.feed_ring();
CREATE TRIGGER tidemill_feed AFTER UPDATE ON {schema}.bucket_owners
    FOR EACH ROW WHEN (OLD.buckets <> NEW.buckets) EXECUTE FUNCTION {schema}.feed_ring();

CREATE FUNCTION {schema}.feed_gap() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.feed_note('gap', jsonb_build_object(
        'consumer', skip.consumer_name, 'position', skip.gap_position::text,
        'to', skip.skip_to_position::text, 'missing', NEW.missing::text, 'how', NEW.how,
        'reason', left(NEW.reason, 1000)))
       FROM {consumer_gap_skips} AS skip
      WHERE skip.id = NEW.skip_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed AFTER INSERT ON {schema}.gap_evidence
    FOR EACH ROW EXECUTE FUNCTION {schema}.feed_gap();

-- Only on a table of our own schema: one that another program made stays as it is, and then
-- assignments are not told.
DO
$$
BEGIN
    IF (SELECT relnamespace FROM pg_class WHERE oid = '{consumer_assignments}'::regclass)
       <> '{schema}'::regnamespace
    THEN
        RETURN;
    END IF;
    CREATE TRIGGER tidemill_feed_assigned AFTER INSERT ON {consumer_assignments}
        FOR EACH ROW WHEN (NEW.worker_id IS NOT NULL)
        EXECUTE FUNCTION {schema}.feed_assignment();
    CREATE TRIGGER tidemill_feed AFTER UPDATE OF worker_id ON {consumer_assignments}
        FOR EACH ROW WHEN (OLD.worker_id IS DISTINCT FROM NEW.worker_id)
        EXECUTE FUNCTION {schema}.feed_assignment();
END
$$;

-- As it was, and whoever listens is told.
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
    INSERT INTO {schema}.feed_changes (tenant, queue, state, attempt, first_id, last_id)
    SELECT tenant, queue, CASE WHEN due_at > NOW() THEN 'scheduled' ELSE 'pending' END, 0,
           task_id, task_id
     WHERE (SELECT one.last_value > date_part('epoch', clock_timestamp()) * 1000
              FROM {schema}.feed_listening AS one);
    PERFORM pg_notify('{tasks_channel}', '');
    RETURN task_id;
END
$$;

-- Whoever may change tasks tells of it, and whoever may change the ledger of claims, as workers and
-- servers do, may also listen and remove what is old.
DO
$$
DECLARE
    one RECORD;
BEGIN
    FOR one IN
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role,
               bool_or(known.relname = 'task_claims') AS is_worker
          FROM pg_class AS known
         CROSS JOIN LATERAL aclexplode(known.relacl) AS acl
         WHERE known.oid IN ('{schema}.tasks'::regclass, '{schema}.task_claims'::regclass)
           AND acl.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
           AND acl.grantee <> known.relowner
         GROUP BY acl.grantee
    LOOP
        EXECUTE format('GRANT INSERT ON {schema}.feed_changes TO %s', one.role);
        EXECUTE format('GRANT SELECT ON SEQUENCE {schema}.feed_listening TO %s', one.role);
        CONTINUE WHEN NOT one.is_worker;
        EXECUTE format('GRANT SELECT, DELETE ON {schema}.feed_changes TO %s', one.role);
        EXECUTE format('GRANT SELECT, UPDATE ON {schema}.feed_era TO %s', one.role);
        EXECUTE format('GRANT SELECT ON SEQUENCE {schema}.feed_changes_position_seq TO %s', one.role);
    END LOOP;
END
$$;

-- The wall also stands before the feed: who acts for one tenant adds changes of that tenant, and reads
-- none, because servers read for all of them.
ALTER FUNCTION {schema}.raise_tenant_wall(TEXT) RENAME TO raise_webhook_wall;

-- As before, for all tables. May be called again, by the owner of the tables: with the name of a role
-- that somebody else made, or after tables were added.
CREATE FUNCTION {schema}.raise_tenant_wall(role_name TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE plpgsql AS
$$
DECLARE
    wall TEXT := {schema}.raise_webhook_wall(role_name);
BEGIN
    ALTER TABLE {schema}.feed_changes ENABLE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS tidemill_everybody ON {schema}.feed_changes;
    DROP POLICY IF EXISTS tidemill_tenant ON {schema}.feed_changes;
    CREATE POLICY tidemill_everybody ON {schema}.feed_changes USING (TRUE);
    EXECUTE format('CREATE POLICY tidemill_tenant ON {schema}.feed_changes AS RESTRICTIVE TO %I
                    USING (tenant = current_setting(''tidemill.tenant'', TRUE))', wall);
    EXECUTE format('GRANT INSERT ON {schema}.feed_changes TO %I', wall);
    EXECUTE format('GRANT SELECT ON SEQUENCE {schema}.feed_listening TO %I', wall);
    RETURN wall;
END
$$;

DO
$$
BEGIN
    PERFORM {schema}.raise_tenant_wall();
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'there is no second wall between tenants: %', SQLERRM
            USING HINT = 'see "Second wall" in docs/reference/auth.md';
END
$$;
