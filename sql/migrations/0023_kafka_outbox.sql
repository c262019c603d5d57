-- What is published to Kafka. docs/how-to/publish-to-kafka.md, docs/adr/0023-kafka-outbox.md.

-- Who publishes ends of tasks, and how far. A row keeps all ends behind its position until they are
-- published, however long its publisher is away; without rows nothing is kept.
CREATE TABLE {schema}.task_publications (
    name         TEXT PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
    position     BIGINT NOT NULL,           -- Ends up to it are published, or refused.
    intended     BIGINT,                    -- Ends up to it may be: somebody was about to.
    holder       UUID,                      -- Who publishes now, until then.
    held_until   TIMESTAMPTZ,
    generation   BIGINT NOT NULL DEFAULT 0, -- Grows with every holder. What they write compares it.
    with_payload BOOLEAN NOT NULL,
    queues       TEXT[],                    -- NULL: all of them.
    created_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK (intended > position),
    CHECK ((holder IS NULL) = (held_until IS NULL))
) WITH (fillfactor = 50);

-- Ends of tasks that are to be published, with all that is said of them: history may be gone by then.
CREATE TABLE {schema}.task_ends (
    position      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id       BIGINT NOT NULL,
    ended_at      TIMESTAMPTZ NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    claimed_at    TIMESTAMPTZ,
    worker_id     UUID,
    attempt       INT NOT NULL,
    max_attempts  INT NOT NULL,
    priority      SMALLINT NOT NULL,
    state         TEXT NOT NULL,
    cause         TEXT,
    tenant        TEXT NOT NULL,
    queue         TEXT NOT NULL,
    kind          TEXT,
    partition_key TEXT,
    trace_parent  TEXT,
    content_type  TEXT,
    payload       TEXT,
    bytes         BYTEA,
    result        TEXT,
    reason        TEXT
) WITH (autovacuum_vacuum_scale_factor = 0.1,
        -- To give pages back takes a lock that every end of a task would wait for.
        vacuum_truncate = off, toast.vacuum_truncate = off);

-- Messages that no broker takes, such as those that are too large. They wait for a person.
CREATE TABLE {schema}.kafka_refused_messages (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    publisher  TEXT NOT NULL,
    topic      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    key        BYTEA,
    value      BYTEA,
    headers    JSONB NOT NULL, -- As those of kafka_dead_messages.
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX kafka_refused_messages_publisher_idx ON {schema}.kafka_refused_messages (publisher, id);

-- Every end of a task is a row that is added to history or to the dead letters, by whatever statement
-- (0012_webhooks.sql). These functions see all of them, in the same transaction. Their triggers are
-- there only while somebody publishes; what they are told is who wants payloads, and which queues. As
-- arguments, because whoever locks a table finds its triggers as they are, whatever its snapshot shows.
--
-- The order of positions is that of ends: the row of the task is gone, and so the transaction id was
-- drawn, before a position is. They must never fail: the end of the task would fail with them. They
-- write as the owner of the tables, because whoever ends a task may be anybody who can do that.
CREATE FUNCTION {schema}.keep_history_ends() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    INSERT INTO {schema}.task_ends
           (task_id, ended_at, created_at, claimed_at, worker_id, attempt, max_attempts, priority,
            state, tenant, queue, kind, partition_key, trace_parent, content_type, payload, bytes,
            result, reason)
    SELECT id, finished_at, created_at, claimed_at, leased_by, attempt, max_attempts, priority,
           state, tenant, queue, kind, partition_key, options ->> 'traceParent', content_type,
           CASE WHEN TG_ARGV[0] = 'payload' THEN payload END,
           CASE WHEN TG_ARGV[0] = 'payload' THEN bytes END, result, reason
      FROM ended
     WHERE TG_NARGS = 1 OR queue = ANY (TG_ARGV[1:])
     ORDER BY id;
    RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.keep_dead_ends() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    INSERT INTO {schema}.task_ends
           (task_id, ended_at, created_at, claimed_at, worker_id, attempt, max_attempts, priority,
            state, cause, tenant, queue, kind, partition_key, trace_parent, content_type, payload,
            bytes, reason)
    SELECT id, dead_at, created_at, claimed_at, leased_by, attempt, max_attempts, priority,
           'dead', cause, tenant, queue, kind, partition_key, options ->> 'traceParent', content_type,
           CASE WHEN TG_ARGV[0] = 'payload' THEN payload END,
           CASE WHEN TG_ARGV[0] = 'payload' THEN bytes END, reason
      FROM ended
     WHERE TG_NARGS = 1 OR queue = ANY (TG_ARGV[1:])
     ORDER BY id;
    RETURN NULL;
END
$$;

-- Makes the triggers what the publications ask for. Not for callers: what calls it has checked them,
-- and holds the lock on the publications. Waits for all transactions that have ended tasks, and holds
-- up those that want to, so it does not wait for long: less than it takes to be found in a deadlock.
CREATE FUNCTION {schema}.follow_task_ends() RETURNS VOID LANGUAGE plpgsql AS
$$
DECLARE
    wanted TEXT;
    -- NULL when there is none; a dump may have left out what is said of it.
    known  TEXT := (SELECT COALESCE(obj_description(oid, 'pg_trigger'), '') FROM pg_trigger
                     WHERE tgrelid = '{schema}.task_history'::regclass
                       AND tgname = 'tidemill_publish');
BEGIN
    SELECT CASE WHEN bool_or(with_payload) THEN quote_literal('payload') ELSE quote_literal('') END ||
           CASE WHEN bool_or(queues IS NULL) THEN ''
                ELSE (SELECT COALESCE(string_agg(DISTINCT ', ' || quote_literal(queue), ''), '')
                        FROM {schema}.task_publications AS one
                       CROSS JOIN LATERAL unnest(one.queues) AS queue) END
      INTO wanted
      FROM {schema}.task_publications
    HAVING count(*) > 0;
    IF wanted IS NOT DISTINCT FROM known THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', '150ms', TRUE);
    LOCK TABLE ONLY {schema}.task_history IN SHARE ROW EXCLUSIVE MODE;
    LOCK TABLE {schema}.dead_letters IN SHARE ROW EXCLUSIVE MODE;
    IF wanted IS NULL THEN
        DROP TRIGGER IF EXISTS tidemill_publish ON {schema}.task_history;
        DROP TRIGGER IF EXISTS tidemill_publish ON {schema}.dead_letters;
        RETURN;
    END IF;
    EXECUTE format('CREATE OR REPLACE TRIGGER tidemill_publish AFTER INSERT ON {schema}.task_history
                    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT
                    EXECUTE FUNCTION {schema}.keep_history_ends(%s)', wanted);
    EXECUTE format('CREATE OR REPLACE TRIGGER tidemill_publish AFTER INSERT ON {schema}.dead_letters
                    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT
                    EXECUTE FUNCTION {schema}.keep_dead_ends(%s)', wanted);
    EXECUTE format('COMMENT ON TRIGGER tidemill_publish ON {schema}.task_history IS %L', wanted);
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.follow_task_ends() FROM PUBLIC;

-- From now on ends of tasks are kept for this publication: all whose statement begins after this has
-- committed. As the owner of the tables, for those who may change the publications.
CREATE FUNCTION {schema}.publish_tasks(publication TEXT, payloads BOOLEAN, of_queues TEXT[])
RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
DECLARE
    beginning BIGINT;
BEGIN
    IF NOT has_table_privilege(session_user, '{schema}.task_publications', 'UPDATE') THEN
        RAISE EXCEPTION 'role "%" may not publish tasks', session_user
            USING ERRCODE = '42501', HINT = 'it needs UPDATE on the table task_publications';
    END IF;
    -- A crash must not take back the position from which it begins.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', TRUE);
    END IF;
    LOCK TABLE {schema}.task_publications IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO {schema}.task_publications AS known (name, position, with_payload, queues)
    VALUES (publication, -1, payloads, of_queues)
        ON CONFLICT (name) DO UPDATE
       SET with_payload = excluded.with_payload, queues = excluded.queues, updated_at = NOW()
     WHERE (known.with_payload, known.queues) IS DISTINCT FROM (excluded.with_payload, excluded.queues);
    PERFORM {schema}.follow_task_ends();
    -- After the triggers are there: whoever begins later draws a higher position.
    UPDATE {schema}.task_publications AS known
       SET position = COALESCE(pg_sequence_last_value('{schema}.task_ends_position_seq'), 0)
     WHERE known.name = publication AND known.position = -1;
    SELECT known.position INTO beginning
      FROM {schema}.task_publications AS known WHERE known.name = publication;
    RETURN beginning;
END
$$;

-- Forgets a publication, and what was kept for it alone. FALSE when there is none.
CREATE FUNCTION {schema}.unpublish_tasks(publication TEXT)
RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    IF NOT has_table_privilege(session_user, '{schema}.task_publications', 'DELETE') THEN
        RAISE EXCEPTION 'role "%" may not end a publication', session_user
            USING ERRCODE = '42501', HINT = 'it needs DELETE on the table task_publications';
    END IF;
    LOCK TABLE {schema}.task_publications IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM {schema}.task_publications AS known WHERE known.name = publication;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    PERFORM {schema}.follow_task_ends();
    DELETE FROM {schema}.task_ends AS one
     WHERE one.position <= COALESCE((SELECT min(position) FROM {schema}.task_publications),
                                    9223372036854775807);
    RETURN TRUE;
END
$$;

-- Whoever may change the ledger of claims, as workers and servers do, may also publish.
DO
$$
DECLARE
    one RECORD;
BEGIN
    FOR one IN
        SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role
          FROM pg_class AS known
         CROSS JOIN LATERAL aclexplode(known.relacl) AS acl
         WHERE known.oid = '{schema}.task_claims'::regclass
           AND acl.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
           AND acl.grantee <> known.relowner
    LOOP
        EXECUTE format('GRANT SELECT, UPDATE, DELETE ON {schema}.task_publications TO %s', one.role);
        EXECUTE format('GRANT SELECT, DELETE ON {schema}.task_ends TO %s', one.role);
        EXECUTE format('GRANT SELECT ON SEQUENCE {schema}.task_ends_position_seq TO %s', one.role);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON {schema}.kafka_refused_messages TO %s', one.role);
    END LOOP;
END
$$;
