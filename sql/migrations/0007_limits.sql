-- Limits of queues across the whole cluster. A worker holds slots, and claims no more than it holds.
-- Starts are counted when they are taken, with the time until which a claim may use them, and count
-- for one period from there; a later claim takes nothing. When it is over they count from when it
-- was made, and what it did not use no longer. So no window of the period has too many, however late a claim
-- comes: whoever took the last of its starts saw all others of the window counted.
CREATE TABLE {schema}.limit_slots (
    queue   TEXT PRIMARY KEY REFERENCES {schema}.queues (name),
    granted INT NOT NULL CHECK (granted >= 0)
) WITH (fillfactor = 50);
CREATE TABLE {schema}.limit_grants (
    queue      TEXT NOT NULL REFERENCES {schema}.limit_slots (queue),
    worker_id  UUID NOT NULL,
    slots      INT NOT NULL CHECK (slots >= 0),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (queue, worker_id)
) WITH (fillfactor = 50);
CREATE TABLE {schema}.limit_starts (
    queue TEXT NOT NULL REFERENCES {schema}.limit_slots (queue),
    slice BIGINT NOT NULL, -- The hundredth of a period that holds `until`: it only bounds the rows.
    until TIMESTAMPTZ NOT NULL,
    count INT NOT NULL CHECK (count >= 0),
    PRIMARY KEY (queue, slice)
) WITH (fillfactor = 50);

-- Counts starts until then, and tells the slice that holds them. The row of the queue is locked.
CREATE FUNCTION {schema}.add_starts(
    queue_name TEXT, good_until TIMESTAMPTZ, amount INT, period FLOAT8
) RETURNS BIGINT LANGUAGE sql AS
$$
    INSERT INTO {schema}.limit_starts AS old (queue, slice, until, count)
    VALUES (queue_name, floor(date_part('epoch', good_until) / (period / 100)), good_until, amount)
        ON CONFLICT (queue, slice) DO UPDATE
       SET until = GREATEST(old.until, excluded.until), count = old.count + excluded.count
    RETURNING slice
$$;

-- Gives a worker up to so many more slots and starts. The row of the queue is locked first, and what
-- follows are statements of their own: they see what was committed while this one waited.
CREATE FUNCTION {schema}.take_limits(
    queue_name TEXT, worker UUID, want_slots INT, want_starts INT, late_seconds FLOAT8,
    OUT slots INT, OUT starts INT, OUT slice BIGINT, OUT deadline FLOAT8, OUT retry_seconds FLOAT8
) LANGUAGE plpgsql AS
$$
#variable_conflict use_column
DECLARE
    rules      JSONB;
    used       BIGINT;
    period     FLOAT8;
    present    TIMESTAMPTZ;
    good_until TIMESTAMPTZ;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true); -- A crash takes back the claims as well.
    INSERT INTO {schema}.limit_slots (queue, granted) VALUES (queue_name, 0) ON CONFLICT DO NOTHING;
    SELECT one.granted INTO used FROM {schema}.limit_slots AS one
     WHERE one.queue = queue_name FOR UPDATE;
    SELECT one.limits INTO rules FROM {schema}.queues AS one WHERE one.name = queue_name;

    slots := want_slots;
    IF rules ->> 'concurrency' IS NOT NULL THEN
        slots := GREATEST(0, LEAST(want_slots, (rules ->> 'concurrency')::int - used));
    END IF;
    IF slots > 0 THEN
        UPDATE {schema}.limit_slots AS one SET granted = one.granted + slots
         WHERE one.queue = queue_name;
        INSERT INTO {schema}.limit_grants AS mine (queue, worker_id, slots)
        VALUES (queue_name, worker, slots)
            ON CONFLICT (queue, worker_id) DO UPDATE
           SET slots = mine.slots + excluded.slots, updated_at = NOW();
    END IF;

    starts := want_starts;
    IF rules -> 'rate' ->> 'count' IS NOT NULL THEN
        period := (rules -> 'rate' ->> 'seconds')::float8;
        present := clock_timestamp();
        DELETE FROM {schema}.limit_starts AS old
         WHERE old.queue = queue_name
           AND (old.until <= present - make_interval(secs => period) OR old.count = 0);
        SELECT COALESCE(sum(old.count), 0) INTO used
          FROM {schema}.limit_starts AS old WHERE old.queue = queue_name;
        starts := GREATEST(0, LEAST(want_starts, (rules -> 'rate' ->> 'count')::int - used));
        IF starts > 0 THEN
            good_until := present + make_interval(secs => late_seconds);
            slice := {schema}.add_starts(queue_name, good_until, starts, period);
            deadline := date_part('epoch', good_until);
        ELSE
            -- What is taken and not used yet may come back, or count from now on.
            SELECT date_part('epoch', LEAST(min(old.until), present) - present) + period
              INTO retry_seconds
              FROM {schema}.limit_starts AS old WHERE old.queue = queue_name;
        END IF;
    END IF;
END
$$;

-- Gives back slots.
CREATE FUNCTION {schema}.return_limits(queue_name TEXT, worker UUID, back_slots INT) RETURNS VOID
LANGUAGE plpgsql AS
$$
DECLARE
    held INT;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM 1 FROM {schema}.limit_slots AS one WHERE one.queue = queue_name FOR UPDATE;
    SELECT mine.slots INTO held FROM {schema}.limit_grants AS mine
     WHERE mine.queue = queue_name AND mine.worker_id = worker FOR UPDATE;
    IF back_slots > 0 AND held IS NOT NULL THEN
        UPDATE {schema}.limit_grants AS mine
           SET slots = held - LEAST(held, back_slots), updated_at = NOW()
         WHERE mine.queue = queue_name AND mine.worker_id = worker;
        UPDATE {schema}.limit_slots AS one SET granted = one.granted - LEAST(held, back_slots)
         WHERE one.queue = queue_name;
    END IF;
END
$$;

-- Says what became of starts that were taken, after their claim: those that it used count from when
-- it was made at the latest, the others no longer.
CREATE FUNCTION {schema}.use_starts(
    queue_name TEXT, from_slice BIGINT, used INT, unused INT, used_by FLOAT8
) RETURNS VOID LANGUAGE plpgsql AS
$$
DECLARE
    period FLOAT8;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM 1 FROM {schema}.limit_slots AS one WHERE one.queue = queue_name FOR UPDATE;
    SELECT (one.limits -> 'rate' ->> 'seconds')::float8 INTO period
      FROM {schema}.queues AS one WHERE one.name = queue_name;
    UPDATE {schema}.limit_starts AS old SET count = GREATEST(0, old.count - used - unused)
     WHERE old.queue = queue_name AND old.slice = from_slice;
    IF used > 0 AND period IS NOT NULL THEN
        PERFORM {schema}.add_starts(
            queue_name, LEAST(to_timestamp(used_by), clock_timestamp()), used, period);
    END IF;
END
$$;

-- Frees what workers hold that are gone, once none of their claims is left. Their rows are locked
-- before the claims are looked at: a claim of theirs locks its grant, too.
CREATE FUNCTION {schema}.free_lost_limits(timeout_seconds FLOAT8) RETURNS INT LANGUAGE plpgsql AS
$$
DECLARE
    lost  RECORD;
    freed INT := 0;
BEGIN
    FOR lost IN
        SELECT mine.queue, mine.worker_id, mine.slots
          FROM {schema}.limit_grants AS mine
         WHERE NOT EXISTS (
                 SELECT FROM {worker_nodes} AS node
                  WHERE node.worker_id = mine.worker_id
                    AND node.heartbeat_at >= NOW() - make_interval(secs => timeout_seconds))
         ORDER BY mine.queue, mine.worker_id
    LOOP
        PERFORM 1 FROM {schema}.limit_slots AS one WHERE one.queue = lost.queue FOR UPDATE;
        PERFORM 1 FROM {schema}.limit_grants AS mine
          WHERE mine.queue = lost.queue AND mine.worker_id = lost.worker_id FOR UPDATE;
        CONTINUE WHEN EXISTS (
            SELECT FROM {schema}.task_claims AS claim
             WHERE claim.worker_id = lost.worker_id AND claim.task_ids <> '{}');
        WITH gone AS (
            DELETE FROM {schema}.limit_grants AS mine
             WHERE mine.queue = lost.queue AND mine.worker_id = lost.worker_id
            RETURNING mine.slots)
        UPDATE {schema}.limit_slots AS one SET granted = one.granted - gone.slots
          FROM gone WHERE one.queue = lost.queue;
        freed := freed + 1;
    END LOOP;
    RETURN freed;
END
$$;
