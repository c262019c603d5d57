import type pg from "pg";
import type {
  CheckpointFact,
  ClaimFact,
  CutFact,
  EffectFact,
  EventFact,
  FiringFact,
  GapFact,
  HandledFact,
  LeaderWriteFact,
  LeftoverFact,
  LossFact,
  MoveFact,
  PackClaimFact,
  ReturnFact,
  ScheduleFact,
  TaskFact,
  TermFact,
  Truth,
} from "../src/checker/truth.ts";
import { PARTITION_NAME } from "./scene.ts";

const ms = (column: string): string => `(extract(epoch FROM ${column}) * 1000)::float8`;

const task = (from: string, state: string, finished: string, lease: string): string => `
  SELECT id::text, COALESCE(payload::json ->> 'name', '') AS name, queue, partition_key AS key,
         ${state} AS state, lease_generation AS generation, claim_id AS "claimId",
         leased_by AS worker, ${finished} AS "finishedAtMs", ${lease} AS "leaseUntilMs"
    FROM tidemill.${from}`;

const NULL_MS = "NULL::float8";
const TASKS = [
  task("live_tasks", "state", NULL_MS, ms("lease_until")),
  task("task_history", "state", ms("finished_at"), NULL_MS),
  task("dead_letters", "'dead'", ms("dead_at"), NULL_MS),
].join(" UNION ALL ");

const EFFECTS = `
  SELECT task_id::text AS task, name, key, generation, claim_id AS "claimId",
         ${ms("started_at")} AS "startedAtMs", ${ms("at")} AS "atMs"
    FROM chaos.effects AS effect ORDER BY effect.seq`;

const EVENTS = `
  SELECT global_position::text AS position, convert_from(payload, 'UTF8')::json ->> 'name' AS name
    FROM tidemill.events AS event ORDER BY event.global_position`;

const HANDLED = `
  SELECT seq::text, consumer, partition, line, position::text, xid::text
    FROM chaos.handled AS one ORDER BY one.seq`;

const TERMS = `
  SELECT seq::text, term::text, leader, ${ms("at")} AS "atMs"
    FROM chaos.terms AS one ORDER BY one.seq`;

const FIRINGS = `
  SELECT schedule, ${ms("tick")} AS "tickMs", task_id::text AS task,
         ${ms("fired_at")} AS "firedAtMs"
    FROM chaos.firings AS one ORDER BY one.tick`;

const SCHEDULES = `
  SELECT name AS schedule, ${ms("created_at")} AS "createdAtMs", ${ms("paused_at")} AS "pausedAtMs"
    FROM tidemill.schedules`;

const WRITES = `
  SELECT seq::text, what, term::text, leader, is_held AS "isHeld", key_space AS "keySpace",
         epoch::text
    FROM chaos.leader_writes AS one ORDER BY one.seq`;

const LOSSES = `
  SELECT task_id::text AS task, worker_id AS worker, ${ms("at")} AS "atMs"
    FROM tidemill.task_failures WHERE outcome = 'lost'`;

// What a worker claimed and never began goes back without a word in the failures.
const RETURNS = `
  SELECT task_id::text AS task, ${ms("at")} AS "atMs"
    FROM (SELECT task_id, at FROM tidemill.task_failures WHERE outcome <> 'lost'
           UNION ALL
          SELECT task_id, at FROM chaos.returns) AS one`;

const CLAIMS = `
  SELECT task_id::text AS task, generation, claim_id AS "claimId", ${ms("at")} AS "atMs"
    FROM chaos.claims`;

const PACK_CLAIMS = `
  SELECT array_to_string(ids, ',') AS ids, claim_id AS "claimId", ${ms("at")} AS "atMs"
    FROM chaos.pack_claims`;

const CUTS = `
  SELECT task_id::text AS task, claim_id AS "claimId", next_claim_id AS "nextClaimId",
         ${ms("at")} AS "atMs"
    FROM chaos.cuts`;

const GAPS = `
  SELECT skip.gap_position::text AS "from", skip.skip_to_position::text AS "to",
         evidence.missing::text AS missing
    FROM tidemill.consumer_gap_skips AS skip
    JOIN tidemill.gap_evidence AS evidence ON evidence.skip_id = skip.id`;

const CHECKPOINTS = `
  SELECT consumer_name AS name, last_position::text AS position
    FROM tidemill.consumer_checkpoints`;

const MOVES = `
  SELECT seq::text, name, from_here::text AS "from", to_here::text AS "to", xid::text
    FROM chaos.moves AS one ORDER BY one.seq`;

const NOW = `SELECT ${ms("clock_timestamp()")} AS "atMs"`;

/** Reads everything that the checker judges by, but leftovers. Nothing may run any more. */
export async function readTruth(
  client: pg.Client,
  leftovers: readonly LeftoverFact[],
): Promise<Truth> {
  const read = async <T extends object>(text: string): Promise<T[]> =>
    (await client.query<T>(text)).rows;
  const checkpoints = await read<Named<CheckpointFact>>(CHECKPOINTS);
  const moves = await read<Named<MoveFact>>(MOVES);
  const [now] = await read<{ atMs: number }>(NOW);
  return {
    atMs: now?.atMs ?? Number.NaN,
    tasks: await read<TaskFact>(TASKS),
    effects: await read<EffectFact>(EFFECTS),
    events: await read<EventFact>(EVENTS),
    handled: await read<HandledFact>(HANDLED),
    terms: await read<TermFact>(TERMS),
    firings: await read<FiringFact>(FIRINGS),
    losses: await read<LossFact>(LOSSES),
    returns: await read<ReturnFact>(RETURNS),
    gaps: await read<GapFact>(GAPS),
    checkpoints: checkpoints.map(({ name, ...fact }) => ({ ...partOf(name), ...fact })),
    claims: await read<ClaimFact>(CLAIMS),
    packClaims: await read<PackClaimFact>(PACK_CLAIMS),
    cuts: await read<CutFact>(CUTS),
    schedules: await read<ScheduleFact>(SCHEDULES),
    writes: await read<LeaderWriteFact>(WRITES),
    leftovers,
    moves: moves.map(({ name, ...fact }) => ({ ...partOf(name), ...fact })),
  };
}

type Part = Pick<CheckpointFact, "consumer" | "partition">;
/** A fact about a partition, as the system names it. */
type Named<Fact extends Part> = Omit<Fact, keyof Part> & { readonly name: string };

function partOf(name: string): Part {
  const [, consumer = name, partition = "0"] = PARTITION_NAME.exec(name) ?? [];
  return { consumer, partition: Number(partition) };
}
