-- Subscriptions: whoever asked is told that work waits. docs/adr/0022-subscriptions.md says why it is
-- kept in this way, and docs/how-to/be-told-of-work.md how it is used.

-- Who is told, of what, and until when. A notice is claimed before it is sent: each change compares
-- generation and claim id. next_at is when the next notice may be sent, and when the lease of one that
-- is under way ends: from then on another sender may send one.
CREATE TABLE {schema}.subscriptions (
    id                   UUID PRIMARY KEY,
    tenant               TEXT NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    url                  TEXT NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 1024),
    queues               TEXT[] CHECK (cardinality(queues) BETWEEN 1 AND 100), -- NULL: all of the tenant.
    mode                 TEXT NOT NULL CHECK (mode IN ('fanout', 'group', 'hash')),
    group_name           TEXT CHECK (octet_length(group_name) BETWEEN 1 AND 200),
    format               TEXT NOT NULL CHECK (format IN ('standard', 'codeq')),
    secret               TEXT, -- Of its own. NULL: that of the tenant's endpoint "default" signs.
    ttl_seconds          FLOAT8 NOT NULL CHECK (ttl_seconds > 0),
    min_interval_seconds FLOAT8 NOT NULL CHECK (min_interval_seconds > 0),
    expires_at           TIMESTAMPTZ NOT NULL,
    next_at              TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    generation           INT NOT NULL DEFAULT 0,
    claim_id             UUID,
    told_at              TIMESTAMPTZ, -- When the last call ended, however it did.
    told_queue           TEXT,
    failures             INT NOT NULL DEFAULT 0, -- In a row.
    failing_since        TIMESTAMPTZ,
    last_status          INT,
    last_error           TEXT,
    created_at           TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK ((group_name IS NOT NULL) = (mode = 'group')),
    CHECK ((secret IS NULL) = (format = 'codeq')),
    CHECK (failing_since IS NULL OR failures > 0)
) WITH (fillfactor = 70);
CREATE INDEX subscriptions_tenant_idx ON {schema}.subscriptions (tenant, id);
CREATE INDEX subscriptions_expires_idx ON {schema}.subscriptions (expires_at);

-- Until when a group need not be told of a queue again, because one of it was. No row: it may be told.
CREATE TABLE {schema}.subscription_turns (
    tenant     TEXT NOT NULL,
    group_name TEXT NOT NULL,
    queue      TEXT NOT NULL,
    next_at    TIMESTAMPTZ NOT NULL,
    claim_id   UUID, -- Of the notice that is under way.
    PRIMARY KEY (tenant, group_name, queue)
) WITH (fillfactor = 70);

-- Which queues a tenant has tasks in, for those who are told of all of them. Lanes are few, and made
-- once: no enqueue writes here.
CREATE INDEX task_lanes_tenant_idx ON {schema}.task_lanes (tenant, queue);

-- Whoever sends webhooks also sends notices.
DO
$$
DECLARE
    one RECORD;
BEGIN
    FOR one IN
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role
          FROM pg_class AS known
         CROSS JOIN LATERAL aclexplode(known.relacl) AS acl
         WHERE known.oid = '{schema}.webhook_deliveries'::regclass
           AND acl.privilege_type = 'DELETE'
           AND acl.grantee <> known.relowner
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE
                        ON {schema}.subscriptions, {schema}.subscription_turns TO %s', one.role);
    END LOOP;
END
$$;

-- The wall also stands between the subscriptions of tenants. Turns are the business of senders, who act
-- for all of them.
ALTER FUNCTION {schema}.raise_tenant_wall(TEXT) RENAME TO raise_feed_wall;

-- As before, for all tables. May be called again, by the owner of the tables: with the name of a role
-- that somebody else made, or after tables were added.
CREATE FUNCTION {schema}.raise_tenant_wall(role_name TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE plpgsql AS
$$
DECLARE
    wall   TEXT := {schema}.raise_feed_wall(role_name);
    walled TEXT;
BEGIN
    FOREACH walled IN ARRAY ARRAY['subscriptions', 'subscription_turns'] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_everybody ON {schema}.%I', walled);
        EXECUTE format('DROP POLICY IF EXISTS tidemill_tenant ON {schema}.%I', walled);
        EXECUTE format('CREATE POLICY tidemill_everybody ON {schema}.%I USING (TRUE)', walled);
        EXECUTE format('CREATE POLICY tidemill_tenant ON {schema}.%I AS RESTRICTIVE TO %I
                        USING (tenant = current_setting(''tidemill.tenant'', TRUE))', walled, wall);
    END LOOP;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.subscriptions TO %I', wall);
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
