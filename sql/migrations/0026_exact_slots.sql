-- How many tasks of a queue stand under claims, by the worker that claimed them, wherever they run
-- now: in one snapshot, because a pack that is opened meanwhile becomes rows. OFFSET 0 keeps the
-- planner from reading all tasks at once. A worker of NULL means all of them.
CREATE FUNCTION {schema}.standing_tasks(queue_name TEXT, worker UUID)
RETURNS TABLE (worker_id UUID, tasks INT) LANGUAGE sql STABLE AS
$$
    SELECT held.worker_id, sum(held.count)::int
      FROM (SELECT claim.worker_id, 1 AS count
              FROM {schema}.task_claims AS claim
             CROSS JOIN LATERAL unnest(claim.task_ids) AS one(id)
             CROSS JOIN LATERAL (
               SELECT FROM {schema}.tasks AS live
                WHERE live.id = one.id AND live.claim_id = claim.claim_id
                  AND live.queue = queue_name
               OFFSET 0
             ) AS task
             WHERE worker IS NULL OR claim.worker_id = worker
             UNION ALL
            SELECT claim.worker_id, cardinality(pack.ids)
              FROM {schema}.task_claims AS claim
             CROSS JOIN LATERAL unnest(claim.pack_ids) AS one(id)
              JOIN {schema}.task_packs AS pack
                ON pack.id = one.id AND pack.claim_id = claim.claim_id
             WHERE pack.queue = queue_name
               AND (worker IS NULL OR claim.worker_id = worker)) AS held
     GROUP BY held.worker_id
$$;

-- Gives a worker, or each of them, slots for what it holds already, even beyond the limit: then
-- nobody is given more until enough of them have come back. Gives how many the worker has.
CREATE FUNCTION {schema}.book_limits(queue_name TEXT, worker UUID) RETURNS INT LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO {schema}.limit_slots (queue, granted) VALUES (queue_name, 0) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM {schema}.limit_slots AS one WHERE one.queue = queue_name FOR UPDATE;
    INSERT INTO {schema}.limit_grants AS mine (queue, worker_id, slots)
    SELECT queue_name, held.worker_id, held.tasks
      FROM {schema}.standing_tasks(queue_name, worker) AS held
     ORDER BY held.worker_id
        ON CONFLICT (queue, worker_id) DO UPDATE
       SET slots = GREATEST(mine.slots, excluded.slots), updated_at = NOW();
    UPDATE {schema}.limit_slots AS one
       SET granted = (SELECT COALESCE(sum(mine.slots), 0) FROM {schema}.limit_grants AS mine
                       WHERE mine.queue = queue_name)
     WHERE one.queue = queue_name;
    RETURN (SELECT mine.slots FROM {schema}.limit_grants AS mine
             WHERE mine.queue = queue_name AND mine.worker_id = worker);
END
$$;

-- With a limit that was not there before, what runs has slots in the same instant: else whoever
-- hears of it first would be given all of them. Claims of workers that have not heard of it yet are
-- not kept waiting; those workers book what they took when they have.
CREATE FUNCTION {schema}.book_running() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.book_limits(NEW.name, NULL);
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_book AFTER UPDATE OF limits_defined, limits_set ON {schema}.queues
    FOR EACH ROW
    WHEN (OLD.limits ->> 'concurrency' IS NULL AND NEW.limits ->> 'concurrency' IS NOT NULL)
    EXECUTE FUNCTION {schema}.book_running();

-- Frees what workers hold that are gone, but for the tasks that stand under their claims: those run
-- elsewhere, or wait to be reaped. The rows of queue and worker are locked, in this order, before
-- the claims are looked at by a statement of its own. A claim has its grant locked until it is
-- committed, so it is seen here, or it finds the grant lowered and takes nothing. What is seen to
-- stand can only become less: so no slot is freed under a task, whatever crashes.
CREATE OR REPLACE FUNCTION {schema}.free_lost_limits(timeout_seconds FLOAT8) RETURNS INT
LANGUAGE plpgsql AS
$$
DECLARE
    lost  RECORD;
    held  INT;
    kept  INT;
    freed INT := 0;
BEGIN
    FOR lost IN
        SELECT mine.queue, mine.worker_id
          FROM {schema}.limit_grants AS mine
         WHERE NOT EXISTS (
                 SELECT FROM {worker_nodes} AS node
                  WHERE node.worker_id = mine.worker_id
                    AND node.heartbeat_at >= NOW() - make_interval(secs => timeout_seconds))
         ORDER BY mine.queue, mine.worker_id
    LOOP
        PERFORM 1 FROM {schema}.limit_slots AS one WHERE one.queue = lost.queue FOR UPDATE;
        SELECT mine.slots INTO held FROM {schema}.limit_grants AS mine
         WHERE mine.queue = lost.queue AND mine.worker_id = lost.worker_id FOR UPDATE;
        CONTINUE WHEN NOT FOUND; -- Somebody else has freed it.
        SELECT LEAST(held, COALESCE(sum(one.tasks), 0)) INTO kept
          FROM {schema}.standing_tasks(lost.queue, lost.worker_id) AS one;
        CONTINUE WHEN kept = held AND kept > 0;
        IF kept = 0 THEN
            DELETE FROM {schema}.limit_grants AS mine
             WHERE mine.queue = lost.queue AND mine.worker_id = lost.worker_id;
        ELSE
            UPDATE {schema}.limit_grants AS mine SET slots = kept, updated_at = NOW()
             WHERE mine.queue = lost.queue AND mine.worker_id = lost.worker_id;
        END IF;
        UPDATE {schema}.limit_slots AS one SET granted = one.granted - held + kept
         WHERE one.queue = lost.queue;
        freed := freed + held - kept;
    END LOOP;
    RETURN freed;
END
$$;
