-- Daily partitions of one table at a time: who made those of both in one transaction held a lock on
-- the first while it waited for the second, and deadlocked with whoever reads the two in the other
-- order. Built beside the table and attached, because CREATE ... PARTITION OF would lock out every
-- completion, and all of them wait while it waits for somebody who reads.
CREATE FUNCTION {schema}.make_history_partitions(parent TEXT, days_ahead INT) RETURNS INT
LANGUAGE plpgsql AS
$$
DECLARE
    name TEXT;
    day  DATE;
    made INT := 0;
BEGIN
    IF parent NOT IN ('task_history', 'task_failures') THEN
        RAISE EXCEPTION 'no daily partitions of %: give task_history or task_failures', parent;
    END IF;
    FOR ahead IN 0 .. days_ahead LOOP
        day := (NOW() AT TIME ZONE 'UTC')::date + ahead;
        name := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('{schema}.' || name) IS NOT NULL;
        BEGIN
            EXECUTE format(
                'CREATE TABLE {schema}.%I (LIKE {schema}.%I INCLUDING ALL)
                 WITH (autovacuum_vacuum_insert_threshold = -1)', name, parent);
            EXECUTE format(
                'ALTER TABLE {schema}.%I ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
                parent, name, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
            made := made + 1;
        EXCEPTION
            -- The default partition has rows of that day: they stay there until they are old.
            WHEN check_violation OR duplicate_table THEN NULL;
        END;
    END LOOP;
    RETURN made;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.make_history_partitions(days_ahead INT) RETURNS INT
LANGUAGE sql AS
$$
    SELECT {schema}.make_history_partitions('task_history', days_ahead)
         + {schema}.make_history_partitions('task_failures', days_ahead)
$$;

CREATE FUNCTION {schema}.drop_history_before(parent TEXT, days_kept INT) RETURNS INT
LANGUAGE plpgsql AS
$$
DECLARE
    edge    DATE := (NOW() AT TIME ZONE 'UTC')::date - days_kept;
    name    TEXT;
    dropped INT := 0;
BEGIN
    IF parent NOT IN ('task_history', 'task_failures') THEN
        RAISE EXCEPTION 'no daily partitions of %: give task_history or task_failures', parent;
    END IF;
    FOR name IN
        SELECT child.relname
          FROM pg_inherits AS link
          JOIN pg_class AS child ON child.oid = link.inhrelid
         WHERE link.inhparent = to_regclass('{schema}.' || parent)
           AND child.relname ~ '_\d{8}$'
           AND to_date(right(child.relname, 8), 'YYYYMMDD') < edge
    LOOP
        IF parent = 'task_history' THEN
            EXECUTE format(
                'UPDATE {schema}.task_idempotency AS known SET end_state = ended.state
                   FROM {schema}.%I AS ended
                  WHERE ended.id = known.task_id AND known.expires_at > NOW()', name);
        END IF;
        EXECUTE format('DROP TABLE {schema}.%I', name);
        dropped := dropped + 1;
    END LOOP;
    IF parent = 'task_history' THEN
        DELETE FROM {schema}.task_history_default WHERE finished_at < edge;
    ELSE
        DELETE FROM {schema}.task_failures_default WHERE at < edge;
    END IF;
    RETURN dropped;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.drop_history_before(days_kept INT) RETURNS INT
LANGUAGE sql AS
$$
    SELECT {schema}.drop_history_before('task_history', days_kept)
         + {schema}.drop_history_before('task_failures', days_kept)
$$;
