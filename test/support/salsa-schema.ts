/*
 * The tables of eventsalsa/store and eventsalsa/worker with their default names, in schema public,
 * as the documented contract has them. The store renamed its columns in v0.1.0: worker v0.0.3 and
 * older read `aggregate_*`, worker v0.1.0 reads `stream_*`. The names of the indexes over
 * `aggregate_*` are not documented and follow the pattern of the others.
 */
export type SalsaFamily = "aggregate" | "stream";

export const headsTable = (family: SalsaFamily): string => `${family}_heads`;

export function salsaStoreDdl(family: SalsaFamily): string {
  return `
    CREATE TABLE IF NOT EXISTS events (
      global_position BIGSERIAL PRIMARY KEY,
      ${family}_type TEXT NOT NULL,
      ${family}_id TEXT NOT NULL,
      ${family}_version BIGINT NOT NULL,
      event_id UUID NOT NULL UNIQUE,
      event_type TEXT NOT NULL,
      event_version INT NOT NULL DEFAULT 1,
      payload BYTEA NOT NULL,
      trace_id TEXT,
      correlation_id TEXT,
      causation_id TEXT,
      metadata JSONB,
      created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
      UNIQUE (${family}_type, ${family}_id, ${family}_version));
    CREATE INDEX IF NOT EXISTS idx_events_${family}
      ON events (${family}_type, ${family}_id, ${family}_version);
    CREATE INDEX IF NOT EXISTS idx_events_event_type ON events (event_type, global_position);
    CREATE INDEX IF NOT EXISTS idx_events_correlation
      ON events (correlation_id) WHERE correlation_id IS NOT NULL;
    CREATE INDEX IF NOT EXISTS idx_events_${family}_type_position
      ON events (${family}_type, global_position);
    CREATE TABLE IF NOT EXISTS ${headsTable(family)} (
      ${family}_type TEXT NOT NULL,
      ${family}_id TEXT NOT NULL,
      ${family}_version BIGINT NOT NULL,
      updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
      PRIMARY KEY (${family}_type, ${family}_id));`;
}

export const SALSA_WORKER_DDL = `
  CREATE TABLE IF NOT EXISTS worker_nodes (
    worker_id UUID PRIMARY KEY,
    heartbeat_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
  CREATE INDEX IF NOT EXISTS idx_worker_nodes_heartbeat ON worker_nodes (heartbeat_at);
  CREATE TABLE IF NOT EXISTS consumer_assignments (
    consumer_name TEXT PRIMARY KEY,
    worker_id UUID REFERENCES worker_nodes(worker_id) ON DELETE SET NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
  CREATE INDEX IF NOT EXISTS idx_consumer_assignments_worker ON consumer_assignments (worker_id);
  CREATE TABLE IF NOT EXISTS consumer_checkpoints (
    consumer_name TEXT PRIMARY KEY,
    last_position BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
  CREATE TABLE IF NOT EXISTS consumer_gap_skips (
    id BIGSERIAL PRIMARY KEY,
    consumer_name TEXT NOT NULL,
    worker_id UUID NOT NULL,
    gap_position BIGINT NOT NULL,
    skip_to_position BIGINT NOT NULL,
    highest_visible_position BIGINT NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
  CREATE INDEX IF NOT EXISTS idx_consumer_gap_skips_consumer
    ON consumer_gap_skips (consumer_name, created_at DESC);
  CREATE TABLE IF NOT EXISTS worker_leader_election (
    lease_key TEXT PRIMARY KEY,
    leader_id UUID REFERENCES worker_nodes(worker_id) ON DELETE CASCADE,
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW());`;

/**
 * Where every member's handler writes. No unique key: a double shows as two rows. The owner is
 * whoever the assignment names at that moment, whatever the member thinks.
 */
export const HANDLED_DDL = `
  CREATE TABLE handled (
    id       BIGINT GENERATED ALWAYS AS IDENTITY,
    consumer TEXT NOT NULL,
    position BIGINT NOT NULL,
    worker   UUID NOT NULL,
    member   TEXT NOT NULL,
    owner    UUID);
  CREATE FUNCTION note_handled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    SELECT worker_id INTO new.owner FROM public.consumer_assignments
     WHERE consumer_name = new.consumer;
    RETURN new;
  END $$;
  CREATE TRIGGER note_handled BEFORE INSERT ON handled
    FOR EACH ROW EXECUTE FUNCTION note_handled();`;
