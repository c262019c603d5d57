-- Whose everything is. Schedules had their tenant among the options of their tasks, and one name for
-- all tenants; and a second wall stands behind the tenant that every statement names.
ALTER TABLE {schema}.schedules
    ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default'
        CHECK (octet_length(tenant) BETWEEN 1 AND 200);
ALTER TABLE {schema}.schedule_firings
    ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
UPDATE {schema}.schedules
   SET tenant = options ->> 'tenant', options = options - 'tenant'
 WHERE options ->> 'tenant' IS NOT NULL;
UPDATE {schema}.schedule_firings AS firing
   SET tenant = schedule.tenant
  FROM {schema}.schedules AS schedule
 WHERE schedule.name = firing.name AND schedule.tenant <> 'default';
ALTER TABLE {schema}.schedule_firings DROP CONSTRAINT schedule_firings_name_fkey;
ALTER TABLE {schema}.schedules DROP CONSTRAINT schedules_pkey;
ALTER TABLE {schema}.schedules ADD CONSTRAINT schedules_pkey PRIMARY KEY (tenant, name);
ALTER TABLE {schema}.schedules ALTER COLUMN tenant DROP DEFAULT;
ALTER TABLE {schema}.schedule_firings ALTER COLUMN tenant DROP DEFAULT;
ALTER TABLE {schema}.schedule_firings
    ADD CONSTRAINT schedule_firings_schedule_fkey FOREIGN KEY (tenant, name)
        REFERENCES {schema}.schedules (tenant, name) ON DELETE CASCADE;
DROP INDEX {schema}.schedule_firings_tick_idx;
DROP INDEX {schema}.schedule_firings_name_idx;
CREATE UNIQUE INDEX schedule_firings_tick_idx ON {schema}.schedule_firings (tenant, name, tick)
    WHERE kind = 'tick';
CREATE INDEX schedule_firings_name_idx ON {schema}.schedule_firings (tenant, name, id);

-- What clients of CodeQ said of a command, per tenant.
CREATE TABLE {schema}.topic_policies (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    policy     JSONB NOT NULL,
    version    INT NOT NULL DEFAULT 1,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant, name)
);

-- The wall: a role that nobody logs in as. A server becomes it for one transaction, which also says
-- whose it is, and then sees and writes the rows of that tenant only, whatever its statements forgot.
-- Everybody else has a policy that lets everything through: what runs tasks is not slowed down, and
-- a worker that does not own the tables still sees them. Roles belong to all databases of a server,
-- so each has its own, which gives nothing in another. May be called again, by the owner of the
-- tables: with the name of a role that somebody else made, or after tables were added.
CREATE FUNCTION {schema}.raise_tenant_wall(role_name TEXT DEFAULT NULL) RETURNS TEXT
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
                                  'schedules', 'schedule_firings', 'topic_policies'] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_everybody ON {schema}.%I', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_tenant ON {schema}.%I', walled);
        EXECUTE format('CREATE POLICY tidemill_everybody ON {schema}.%I USING (TRUE)', walled);
        EXECUTE format(
            'CREATE POLICY tidemill_tenant ON {schema}.%I AS RESTRICTIVE TO %I USING (%s)',
            walled, wall, CASE walled WHEN 'task_failures' THEN known ELSE mine END);
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
                    {schema}.limit_slots, {schema}.limit_starts, {worker_nodes} TO %I', wall);
    EXECUTE format('GRANT SELECT, UPDATE ON {schema}.cluster_changes TO %I', wall);
    EXECUTE format('GRANT INSERT ON {schema}.task_tally TO %I', wall);
    INSERT INTO {schema}.settings AS old (key, value) VALUES ('tenant_role', wall)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    RETURN wall;
END
$$;

-- Who may not make roles has the tenant in every statement and no second wall: a server says so when
-- it starts, and can be told to refuse.
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
