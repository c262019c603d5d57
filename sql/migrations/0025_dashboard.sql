-- Who did what to what others rely on, through a server. The row is there before the act is tried,
-- so that nothing is done without a trace; one whose server died meanwhile has no status.
CREATE TABLE {schema}.audit_log (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    act        TEXT NOT NULL,
    call       TEXT NOT NULL,
    target     JSONB NOT NULL DEFAULT '{}',
    reason     TEXT,
    tenant     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    token_id   TEXT NOT NULL,
    request_id TEXT NOT NULL,
    status     INT
);

-- Whoever looks after the cluster is told of it once it is done, or was refused.
ALTER TABLE {schema}.feed_changes
    DROP CONSTRAINT feed_changes_kind_check,
    ADD CONSTRAINT feed_changes_kind_check
        CHECK (kind IN ('task', 'consumer', 'worker', 'ring', 'gap', 'act'));

CREATE FUNCTION {schema}.feed_act() RETURNS TRIGGER LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
BEGIN
    PERFORM {schema}.feed_note('act', jsonb_build_object(
        'id', NEW.id::text, 'act', NEW.act, 'call', NEW.call, 'target', NEW.target,
        'reason', left(NEW.reason, 1000), 'tenant', NEW.tenant, 'subject', NEW.subject,
        'status', NEW.status));
    RETURN NULL;
END
$$;
CREATE TRIGGER tidemill_feed AFTER UPDATE OF status ON {schema}.audit_log
    FOR EACH ROW EXECUTE FUNCTION {schema}.feed_act();

-- What was refused or cancelled is looked for among millions that completed, which are not here.
CREATE INDEX task_history_refused_idx ON {schema}.task_history (id) WHERE state <> 'completed';

-- Tasks that somebody may hold, by the ledger of claims, which those behind the wall do not see:
-- what they may not see of the tasks themselves, these numbers do not show them either.
CREATE FUNCTION {schema}.claimed_tasks() RETURNS SETOF BIGINT LANGUAGE sql STABLE ROWS 10000
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
    SELECT held.id FROM {schema}.task_claims AS claim
     CROSS JOIN LATERAL unnest(claim.task_ids) AS held(id)
$$;
CREATE FUNCTION {schema}.claimed_packs() RETURNS SETOF BIGINT LANGUAGE sql STABLE ROWS 100
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
    SELECT held.id FROM {schema}.task_claims AS claim
     CROSS JOIN LATERAL unnest(claim.pack_ids) AS held(id)
$$;

-- Whoever may change the ledger of claims, as workers and servers do, may write this one and remove
-- what is old.
DO
$$
DECLARE
    one RECORD;
BEGIN
    FOR one IN
        SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
               AS role
          FROM pg_class AS known
         CROSS JOIN LATERAL aclexplode(known.relacl) AS acl
         WHERE known.oid = '{schema}.task_claims'::regclass
           AND acl.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
           AND acl.grantee <> known.relowner
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.audit_log TO %s', one.role);
    END LOOP;
END
$$;
