import type pg from "pg";
import { remote } from "./scene.ts";

// Triggers tell what nobody else keeps: every change of a checkpoint and of the leader's term, and
// every firing of a schedule, of which the system itself keeps the latest only; every claim, and
// those that end before their lease does; what leaders write. One counts remote tasks that ended.
const LOAD = `
  CREATE SCHEMA chaos;
  CREATE TABLE chaos.effects (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id    BIGINT NOT NULL,
    name       TEXT NOT NULL,
    key        TEXT,
    generation INT NOT NULL,
    claim_id   UUID NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE TABLE chaos.handled (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer  TEXT NOT NULL,
    partition INT NOT NULL,
    line      TEXT NOT NULL,
    position  BIGINT NOT NULL,
    xid       XID8 NOT NULL DEFAULT pg_current_xact_id()
  );
  CREATE TABLE chaos.claims (
    task_id    BIGINT NOT NULL,
    generation INT NOT NULL,
    claim_id   UUID NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE FUNCTION chaos.record_claim() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.claims VALUES (NEW.id, NEW.lease_generation, NEW.claim_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_claim AFTER UPDATE ON tidemill.tasks
    FOR EACH ROW WHEN (NEW.lease_generation > OLD.lease_generation)
    EXECUTE FUNCTION chaos.record_claim();
  CREATE TABLE chaos.cuts (
    task_id       BIGINT NOT NULL,
    claim_id      UUID NOT NULL,
    next_claim_id UUID,
    at            TIMESTAMPTZ NOT NULL DEFAULT NOW()
  );
  CREATE FUNCTION chaos.record_cut() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.cuts VALUES (NEW.id, OLD.claim_id, NEW.claim_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_cut AFTER UPDATE ON tidemill.tasks
    FOR EACH ROW WHEN (OLD.lease_until > NOW() AND NEW.claim_id IS DISTINCT FROM OLD.claim_id)
    EXECUTE FUNCTION chaos.record_cut();
  CREATE TABLE chaos.returns (
    task_id BIGINT NOT NULL,
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE FUNCTION chaos.record_return() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.returns VALUES (NEW.id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_return AFTER UPDATE ON tidemill.tasks
    FOR EACH ROW WHEN (OLD.state = 'running' AND NEW.state = 'pending')
    EXECUTE FUNCTION chaos.record_return();
`;

// Tasks that wait in one row are claimed and completed together. Who takes them apart makes a row
// of each, in the statement that removes theirs: under the same claim, or their lease was cut.
const PACKS = `
  CREATE TABLE chaos.pack_claims (
    ids      BIGINT[] NOT NULL,
    claim_id UUID NOT NULL,
    at       TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE FUNCTION chaos.record_pack_claim() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.pack_claims VALUES (NEW.ids, NEW.claim_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_claim AFTER UPDATE ON tidemill.task_packs
    FOR EACH ROW WHEN (NEW.claim_id IS NOT NULL AND NEW.claim_id IS DISTINCT FROM OLD.claim_id)
    EXECUTE FUNCTION chaos.record_pack_claim();
  CREATE FUNCTION chaos.record_pack_cut() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.cuts
    SELECT id, OLD.claim_id, NEW.claim_id FROM unnest(OLD.ids) AS id;
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_cut AFTER UPDATE ON tidemill.task_packs
    FOR EACH ROW WHEN (OLD.lease_until > NOW() AND NEW.claim_id IS DISTINCT FROM OLD.claim_id)
    EXECUTE FUNCTION chaos.record_pack_cut();
  CREATE FUNCTION chaos.record_pack_return() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.returns SELECT id FROM unnest(OLD.ids) AS id;
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_return AFTER UPDATE ON tidemill.task_packs
    FOR EACH ROW WHEN (OLD.claim_id IS NOT NULL AND NEW.claim_id IS NULL)
    EXECUTE FUNCTION chaos.record_pack_return();
  CREATE FUNCTION chaos.record_opened_cut() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.cuts
    SELECT task.id, OLD.claim_id, task.claim_id
      FROM tidemill.tasks AS task
     WHERE task.id = ANY (OLD.ids) AND task.claim_id IS DISTINCT FROM OLD.claim_id;
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_opened_cut AFTER DELETE ON tidemill.task_packs
    FOR EACH ROW WHEN (OLD.claim_id IS NOT NULL AND OLD.lease_until > NOW())
    EXECUTE FUNCTION chaos.record_opened_cut();`;

const LOG = `
  CREATE TABLE chaos.moves (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY,
    name      TEXT NOT NULL,
    from_here BIGINT NOT NULL,
    to_here   BIGINT NOT NULL,
    xid       XID8 NOT NULL DEFAULT pg_current_xact_id()
  );
  CREATE FUNCTION chaos.record_move() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.moves (name, from_here, to_here)
    VALUES (NEW.consumer_name, OLD.last_position, NEW.last_position);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_move AFTER UPDATE ON tidemill.consumer_checkpoints
    FOR EACH ROW WHEN (OLD.last_position <> NEW.last_position)
    EXECUTE FUNCTION chaos.record_move();
  CREATE TABLE chaos.cures (at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());
`;

// Whoever has a row locked is its xmax, alone or as a member. A number that is no list of members
// is refused; one that is, and is somebody else's, does not have this transaction in it.
const CLUSTER = `
  CREATE TABLE chaos.leader_writes (
    seq       BIGINT GENERATED ALWAYS AS IDENTITY,
    what      TEXT NOT NULL,
    term      BIGINT NOT NULL,
    leader    UUID,
    is_held   BOOLEAN NOT NULL,
    key_space INT,
    epoch     BIGINT
  );
  CREATE FUNCTION chaos.is_locked_by(locker xid, own xid) RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    RETURN locker = own
        OR EXISTS (SELECT FROM pg_get_multixact_members(locker) AS one WHERE one.xid = own);
  EXCEPTION WHEN OTHERS THEN
    RETURN FALSE;
  END $$;
  CREATE FUNCTION chaos.write_as_leader(what TEXT, key_space INT, epoch BIGINT)
  RETURNS void LANGUAGE sql AS $$
    INSERT INTO chaos.leader_writes (what, term, leader, is_held, key_space, epoch)
    SELECT what, row.term, row.leader_id,
           chaos.is_locked_by(row.xmax, pg_current_xact_id()::xid), key_space, epoch
      FROM tidemill.leader_term AS row
  $$;
  CREATE FUNCTION chaos.record_assignment() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM chaos.write_as_leader('the owner of ' || NEW.consumer_name, NULL, NULL);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_assignment AFTER UPDATE ON tidemill.consumer_assignments
    FOR EACH ROW
    WHEN (NEW.worker_id IS NOT NULL AND NEW.worker_id IS DISTINCT FROM OLD.worker_id)
    EXECUTE FUNCTION chaos.record_assignment();
  CREATE FUNCTION chaos.record_buckets() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM chaos.write_as_leader('what ' || COALESCE(NEW.worker_id, OLD.worker_id) || ' owns',
                                  COALESCE(NEW.key_space_id, OLD.key_space_id), NEW.epoch);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_buckets AFTER INSERT OR UPDATE OR DELETE ON tidemill.bucket_owners
    FOR EACH ROW EXECUTE FUNCTION chaos.record_buckets();
  CREATE TABLE chaos.terms (
    seq    BIGINT GENERATED ALWAYS AS IDENTITY,
    term   BIGINT NOT NULL,
    leader UUID,
    at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE TABLE chaos.firings (
    schedule TEXT NOT NULL,
    tick     TIMESTAMPTZ NOT NULL,
    task_id  BIGINT NOT NULL,
    fired_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  CREATE FUNCTION chaos.record_term() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.terms (term, leader) VALUES (NEW.term, NEW.leader_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_term AFTER UPDATE ON tidemill.leader_term
    FOR EACH ROW WHEN (OLD.term <> NEW.term) EXECUTE FUNCTION chaos.record_term();
  CREATE FUNCTION chaos.record_firing() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.firings VALUES (NEW.name, NEW.tick, NEW.task_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_firing AFTER INSERT ON tidemill.schedule_firings
    FOR EACH ROW WHEN (NEW.kind = 'tick') EXECUTE FUNCTION chaos.record_firing();
  CREATE TABLE chaos.remote_ends (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
  CREATE FUNCTION chaos.count_remote_end() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO chaos.remote_ends DEFAULT VALUES;
    RETURN NULL;
  END $$;
  CREATE TRIGGER count_remote_end AFTER INSERT ON tidemill.task_history
    FOR EACH ROW WHEN (NEW.queue = '${remote.name}') EXECUTE FUNCTION chaos.count_remote_end();`;

/** After the migrations of the system itself. */
export async function createTables(client: pg.ClientBase): Promise<void> {
  await client.query([LOAD, PACKS, LOG, CLUSTER].join(""));
}
