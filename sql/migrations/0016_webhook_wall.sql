-- The wall of 0011 also stands between the webhooks of tenants: a server that acts for one of them sees
-- and writes its endpoints, its deliveries and what became of those, and nobody else's. Ends of tasks
-- are written down by triggers, as the owner of the tables, whatever the wall.
ALTER FUNCTION {schema}.raise_tenant_wall(TEXT) RENAME TO raise_task_wall;

-- As before, for all tables. May be called again, by the owner of the tables: with the name of a role
-- that somebody else made, or after tables were added.
CREATE FUNCTION {schema}.raise_tenant_wall(role_name TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE plpgsql AS
$$
DECLARE
    wall   TEXT := {schema}.raise_task_wall(role_name);
    mine   TEXT := 'tenant = current_setting(''tidemill.tenant'', TRUE)';
    -- Its delivery can be seen, which is for the policy of that table.
    known  TEXT := 'EXISTS (SELECT FROM {schema}.webhook_deliveries AS one'
        || ' WHERE one.number = delivery)';
    walled TEXT;
BEGIN
    FOREACH walled IN ARRAY ARRAY['webhook_endpoints', 'webhook_deliveries', 'webhook_attempts'] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_everybody ON {schema}.%I', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_tenant ON {schema}.%I', walled);
        EXECUTE format('CREATE POLICY tidemill_everybody ON {schema}.%I USING (TRUE)', walled);
        EXECUTE format(
            'CREATE POLICY tidemill_tenant ON {schema}.%I AS RESTRICTIVE TO %I USING (%s)',
            walled, wall, CASE walled WHEN 'webhook_attempts' THEN known ELSE mine END);
    END LOOP;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.webhook_endpoints TO %I', wall);
    EXECUTE format('GRANT SELECT, UPDATE ON {schema}.webhook_deliveries TO %I', wall);
    EXECUTE format('GRANT SELECT ON {schema}.webhook_attempts TO %I', wall);
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
