import type { Queryable } from "../../../db/database.ts";
import { statement } from "../../../db/statement.ts";
import type { NoticeFormat, NoticeMode } from "../subscription.ts";

// Tenant after tenant, so that one round comes to all of them, however many are due and have
// nothing to be told. Those of mode hash are read whether or not they are due: who is chosen does
// not depend on who may be told now. The number is read before anything is looked at, see work.ts.
const DUE = statement(
  "subscriptions_due",
  `WITH page AS MATERIALIZED (
     SELECT id, tenant, url, queues, mode, group_name, format, generation, told_at, told_queue,
            failures, next_at <= NOW() AS is_due
       FROM {schema}.subscriptions
      WHERE tenant > $1
        AND expires_at > NOW()
        AND (next_at <= NOW() OR mode = 'hash')
      ORDER BY tenant, id
      LIMIT $2
   ), look AS (
     SELECT COALESCE(pg_sequence_last_value('{schema}.task_numbers'::regclass), 0)::text AS number,
            (SELECT extract(epoch FROM min(next_at) - NOW())::float8
               FROM {schema}.subscriptions
              WHERE next_at > NOW() AND expires_at > NOW()) AS wait_seconds
   )
   SELECT look.number, look.wait_seconds, page.*
     FROM look
     LEFT JOIN page ON TRUE
    ORDER BY page.tenant, page.id`,
);

/** A subscription that may be told something, or whose being there matters to others. */
export interface Candidate {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  /** Null: all of the tenant. */
  readonly queues: readonly string[] | null;
  readonly mode: NoticeMode;
  readonly group_name: string | null;
  readonly format: NoticeFormat;
  readonly generation: number;
  readonly told_at: Date | null;
  readonly told_queue: string | null;
  readonly failures: number;
  readonly is_due: boolean;
}

export interface DuePage {
  readonly candidates: readonly Candidate[];
  /** Where the next look goes on; "" when there are no further tenants. */
  readonly afterTenant: string;
  /** The last number that was drawn for a task, before this was read. */
  readonly number: number;
  /** Until the next subscription is due that is not now. */
  readonly waitSeconds: number;
}

/** Those of the next tenants, of each all or none. */
export async function readDue(db: Queryable, afterTenant: string, max: number): Promise<DuePage> {
  const rows = await db.query<
    { number: string; wait_seconds: number | null } & (Candidate | { readonly id: null })
  >(DUE, [afterTenant, max]);
  const found = rows.filter((row): row is (typeof rows)[number] & Candidate => row.id !== null);
  const isWhole = found.length < max;
  const last = found.at(-1)?.tenant ?? "";
  // Of the last tenant of a full page some may be missing; of the only one more than there may be.
  const isAlone = found[0]?.tenant === last;
  const candidates = isWhole || isAlone ? found : found.filter(({ tenant }) => tenant !== last);
  return {
    candidates,
    afterTenant: isWhole ? "" : (candidates.at(-1)?.tenant ?? ""),
    number: Number(rows[0]?.number ?? 0),
    waitSeconds: rows[0]?.wait_seconds ?? Infinity,
  };
}

const QUIET = statement(
  "subscription_turns_quiet",
  `SELECT tenant, group_name, queue
     FROM {schema}.subscription_turns
    WHERE tenant = ANY ($1::text[])
      AND next_at > NOW()`,
);

/** One queue as far as one group is concerned. */
export interface Turn {
  readonly tenant: string;
  readonly group_name: string;
  readonly queue: string;
}

/** Of which queues groups of these tenants need not be told now. */
export async function readQuiet(db: Queryable, tenants: readonly string[]): Promise<Turn[]> {
  return await db.query<Turn>(QUIET, [[...tenants]]);
}

// Compared by generation, and passed over where another sender has the row: of two that chose the
// same, one has it. A group is told by whoever gets its turn, which is a row of its own: there two
// that chose different members meet. Both are held for the lease, which is longer than a call.
const CLAIM = statement(
  "notices_claim",
  `WITH held AS MATERIALIZED (
     SELECT one.id
       FROM {schema}.subscriptions AS one
       JOIN unnest($1::uuid[], $2::int[]) AS chosen(id, generation)
         ON chosen.id = one.id AND chosen.generation = one.generation
      WHERE one.next_at <= NOW()
        AND one.expires_at > NOW()
      ORDER BY one.id
        FOR UPDATE OF one SKIP LOCKED
   ), claimed AS (
     UPDATE {schema}.subscriptions AS one
        SET generation = one.generation + 1, claim_id = gen_random_uuid(),
            next_at = NOW() + make_interval(secs => $5::float8)
       FROM held
      WHERE one.id = held.id
     RETURNING one.id, one.tenant, one.url, one.mode, one.group_name, one.format, one.secret,
               one.generation, one.claim_id, one.failures, one.failing_since
   ), turn AS (
     INSERT INTO {schema}.subscription_turns AS turn (tenant, group_name, queue, next_at, claim_id)
     SELECT claimed.tenant, claimed.group_name, line.queue,
            NOW() + make_interval(secs => $5::float8), claimed.claim_id
       FROM unnest($3::uuid[], $4::text[]) AS line(id, queue)
       JOIN claimed ON claimed.id = line.id
      ORDER BY claimed.tenant, claimed.group_name, line.queue
         ON CONFLICT (tenant, group_name, queue) DO UPDATE
        SET next_at = excluded.next_at, claim_id = excluded.claim_id
      WHERE turn.next_at <= NOW()
     RETURNING turn.queue, turn.claim_id
   )
   SELECT claimed.*,
          ARRAY(SELECT turn.queue FROM turn WHERE turn.claim_id = claimed.claim_id) AS turns
     FROM claimed`,
);

/** A notice that this process holds until its lease ends. */
export interface ClaimedNotice {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  readonly mode: NoticeMode;
  readonly group_name: string | null;
  readonly format: NoticeFormat;
  readonly secret: string | null;
  readonly generation: number;
  readonly claim_id: string;
  readonly failures: number;
  readonly failing_since: Date | null;
  /** Of which queues it has its group's turn. */
  readonly turns: readonly string[];
}

export interface NoticeClaim {
  readonly chosen: readonly { readonly id: string; readonly generation: number }[];
  /** The turns that go with those that are of a group. */
  readonly turns: readonly { readonly id: string; readonly queue: string }[];
  readonly leaseSeconds: number;
}

export async function claimNotices(db: Queryable, claim: NoticeClaim): Promise<ClaimedNotice[]> {
  const { chosen, turns, leaseSeconds } = claim;
  return await db.query<ClaimedNotice>(CLAIM, [
    chosen.map(({ id }) => id),
    chosen.map(({ generation }) => generation),
    turns.map(({ id }) => id),
    turns.map(({ queue }) => queue),
    leaseSeconds,
  ]);
}

/** What every change of a claimed notice is compared with. */
export interface NoticeToken {
  readonly id: string;
  readonly generation: number;
  readonly claimId: string;
}

const HELD = "id = $1 AND generation = $2 AND claim_id = $3";

// The interval begins when the call has ended: so two of them are never closer, however long the
// first one was under way. A group whose member could not be told has its turn back at once.
const RECORD = statement(
  "notice_record",
  `WITH recorded AS (
     UPDATE {schema}.subscriptions
        SET claim_id = NULL, told_at = NOW(), told_queue = $4,
            failures = CASE WHEN $5::boolean THEN 0 ELSE failures + 1 END,
            failing_since = CASE WHEN $6::boolean THEN COALESCE(failing_since, NOW()) END,
            last_status = $7, last_error = $8,
            next_at = NOW() + make_interval(secs => GREATEST(min_interval_seconds, $9::float8))
      WHERE ${HELD}
     RETURNING tenant, group_name, min_interval_seconds
   ), turn AS (
     UPDATE {schema}.subscription_turns AS turn
        SET claim_id = NULL,
            next_at = NOW() + make_interval(
              secs => CASE WHEN $5::boolean THEN recorded.min_interval_seconds ELSE 0 END)
       FROM recorded
      WHERE turn.tenant = recorded.tenant
        AND turn.group_name = recorded.group_name
        AND turn.claim_id = $3
   )
   SELECT tenant FROM recorded`,
);

export interface NoticeRecord {
  readonly isTold: boolean;
  readonly isFailing: boolean;
  readonly status?: number;
  readonly error?: string;
  /** After a failure. */
  readonly pauseSeconds: number;
  /** The last that it was told of. */
  readonly queue: string;
}

/** False when the claim is no longer held: nothing was written. */
export async function recordNotice(
  db: Queryable,
  { id, generation, claimId }: NoticeToken,
  record: NoticeRecord,
): Promise<boolean> {
  const rows = await db.query(RECORD, [
    id,
    generation,
    claimId,
    record.queue,
    record.isTold,
    record.isFailing,
    record.status ?? null,
    record.error ?? null,
    record.pauseSeconds,
  ]);
  return rows.length === 1;
}

const RELEASE = statement(
  "notice_release",
  `WITH released AS (
     UPDATE {schema}.subscriptions
        SET claim_id = NULL, next_at = NOW()
      WHERE ${HELD}
     RETURNING tenant, group_name
   ), turn AS (
     UPDATE {schema}.subscription_turns AS turn
        SET claim_id = NULL, next_at = NOW()
       FROM released
      WHERE turn.tenant = released.tenant
        AND turn.group_name = released.group_name
        AND turn.claim_id = $3
   )
   SELECT tenant FROM released`,
);

/** Gives one back that was not sent, or whose answer was not waited for. */
export async function releaseNotice(db: Queryable, token: NoticeToken): Promise<boolean> {
  const { id, generation, claimId } = token;
  return (await db.query(RELEASE, [id, generation, claimId])).length === 1;
}
