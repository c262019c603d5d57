import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";
import type { CallLimits, Counted } from "../in-flight.ts";
import type { EndedTask, WebhookFormat, WebhookType } from "../message.ts";
import type { DeathCause } from "../verdict.ts";

const LIVE = "state IN ('pending', 'running')";

/** The secrets that sign now, the newest first. */
export const ACTIVE_SECRETS = `CASE WHEN endpoint.old_secret_until > NOW() THEN endpoint.secrets
               ELSE endpoint.secrets[1:1] END`;

// Lanes are looked at one by one, each by one step into the index, from where the last look ended:
// ten thousand deliveries that wait for a slow receiver cost as much as one. What is due of a lane
// is taken up to the places that are left to it, one of each lane before a second of any. Rows that
// another sender has locked are passed over. A row that was still running is one whose sender was
// lost: that attempt is logged, too, and counts.
const CLAIM = statement(
  "deliveries_claim",
  `WITH RECURSIVE seen AS (
     (SELECT lane, tenant, next_at, 1 AS place
        FROM {schema}.webhook_deliveries
       WHERE ${LIVE} AND lane > $3
       ORDER BY lane, next_at
       LIMIT 1)
     UNION ALL
     SELECT next.lane, next.tenant, next.next_at, seen.place + 1
       FROM seen
      CROSS JOIN LATERAL (
        SELECT lane, tenant, next_at
          FROM {schema}.webhook_deliveries
         WHERE ${LIVE} AND lane > seen.lane
         ORDER BY lane, next_at
         LIMIT 1
      ) AS next
      WHERE seen.place < $4
   ), open AS MATERIALIZED (
     SELECT seen.*, $8::int - COALESCE(busy.count, 0) AS room
       FROM seen
       LEFT JOIN unnest($6::text[], $7::int[]) AS busy(lane, count) ON busy.lane = seen.lane
      WHERE COALESCE(busy.count, 0) < $8::int
   ), due AS MATERIALIZED (
     SELECT pick.number, pick.is_lost, open.tenant, open.place,
            row_number() OVER (PARTITION BY open.lane ORDER BY pick.next_at, pick.number) AS turn
       FROM open
      CROSS JOIN LATERAL (
        SELECT number, next_at, state = 'running' AS is_lost
          FROM {schema}.webhook_deliveries
         WHERE lane = open.lane AND ${LIVE} AND next_at <= NOW()
         ORDER BY next_at
         LIMIT open.room
           FOR UPDATE SKIP LOCKED
      ) AS pick
      WHERE open.next_at <= NOW()
   ), fair AS (
     SELECT due.*, row_number() OVER (PARTITION BY due.tenant ORDER BY due.turn, due.place) AS share
       FROM due
   ), picked AS MATERIALIZED (
     SELECT fair.number, fair.is_lost, fair.place
       FROM fair
       LEFT JOIN unnest($9::text[], $10::int[]) AS used(tenant, count) ON used.tenant = fair.tenant
      WHERE fair.share <= $11::int - COALESCE(used.count, 0)
      ORDER BY fair.turn, fair.place
      LIMIT $5
   ), claimed AS (
     UPDATE {schema}.webhook_deliveries AS delivery
        SET state = 'running', claim_id = $1, generation = delivery.generation + 1,
            attempt = delivery.attempt + 1,
            next_at = NOW() + make_interval(secs => $2)
       FROM picked
      WHERE delivery.number = picked.number
     RETURNING delivery.*, picked.is_lost, picked.place
   ), lost AS (
     INSERT INTO {schema}.webhook_attempts (delivery, generation, attempt, error, message)
     SELECT number, generation - 1, attempt - 1, 'lost', 'its sender ended before it could tell'
       FROM claimed
      WHERE is_lost
         ON CONFLICT DO NOTHING
   ), look AS (
     SELECT (SELECT count(*)::int FROM seen) AS lanes,
            (SELECT lane FROM seen ORDER BY place DESC LIMIT 1) AS last_lane,
            (SELECT extract(epoch FROM min(next_at) - NOW())::float8 FROM open) AS wait_seconds
   )
   SELECT look.*, claimed.number::text AS number, claimed.id, claimed.tenant, claimed.endpoint,
          COALESCE(claimed.url, endpoint.url) AS url, claimed.lane,
          claimed.task_id::text AS task_id, claimed.type, claimed.at, claimed.task, claimed.result,
          claimed.reason, claimed.attempt, claimed.generation, claimed.place,
          endpoint.format, endpoint.disabled_reason, ${ACTIVE_SECRETS} AS secrets
     FROM look
     LEFT JOIN claimed ON TRUE
     LEFT JOIN {schema}.webhook_endpoints AS endpoint
            ON endpoint.tenant = claimed.tenant AND endpoint.id = claimed.endpoint
    ORDER BY claimed.place`,
);

/** A delivery that this process holds until its lease ends. */
export interface ClaimedRow {
  readonly number: string;
  readonly id: string;
  readonly tenant: string;
  readonly endpoint: string;
  readonly url: string | null;
  readonly lane: string;
  readonly task_id: string;
  readonly type: WebhookType;
  readonly at: Date;
  readonly task: EndedTask;
  readonly result: string | null;
  readonly reason: string | null;
  readonly attempt: number;
  readonly generation: number;
  readonly place: number;
  /** Null when there is no such endpoint. */
  readonly format: WebhookFormat | null;
  readonly disabled_reason: string | null;
  readonly secrets: readonly string[] | null;
}

interface LookRow {
  readonly lanes: number;
  readonly last_lane: string | null;
  readonly wait_seconds: number | null;
}

export interface DeliveryClaim {
  readonly claimId: string;
  readonly leaseSeconds: number;
  /** Lanes after this one; "" for all. */
  readonly afterLane: string;
  readonly lanesMax: number;
  readonly room: number;
  readonly limits: CallLimits;
  readonly lanes: Counted;
  readonly tenants: Counted;
}

export interface ClaimedDeliveries {
  readonly rows: readonly ClaimedRow[];
  /** Where the next look goes on; "" when there are no further lanes. */
  readonly afterLane: string;
  /** Until something of the lanes that were seen is due. */
  readonly waitSeconds: number;
}

export async function claimDeliveries(
  db: Queryable,
  claim: DeliveryClaim,
): Promise<ClaimedDeliveries> {
  const { limits, lanes, tenants } = claim;
  const found = await db.query<LookRow & (ClaimedRow | { readonly number: null })>(CLAIM, [
    claim.claimId,
    claim.leaseSeconds,
    claim.afterLane,
    claim.lanesMax,
    claim.room,
    lanes.map(([lane]) => lane),
    lanes.map(([, count]) => count),
    limits.lane,
    tenants.map(([tenant]) => tenant),
    tenants.map(([, count]) => count),
    limits.tenant,
  ]);
  const [look] = found;
  const rows = found.filter((row): row is LookRow & ClaimedRow => row.number !== null);
  const isSeenWhole = (look?.lanes ?? 0) < claim.lanesMax;
  // Who got nothing because the places were used up is the first of the next look.
  const isFull = rows.length >= claim.room;
  const afterLane = isFull ? rows.at(-1)?.lane : isSeenWhole ? "" : look?.last_lane;
  return { rows, afterLane: afterLane ?? "", waitSeconds: look?.wait_seconds ?? Infinity };
}

/** What every change of a claimed delivery is compared with. */
export interface DeliveryToken {
  readonly number: string;
  readonly generation: number;
  readonly claimId: string;
}

const HELD = `number = $1 AND generation = $2 AND claim_id = $3 AND state = 'running'`;

// The state, the log and the endpoint that is gone are one statement: nobody sees one without the
// others. An endpoint that has another address by now is not meant.
const RECORD = statement(
  "delivery_record",
  `WITH recorded AS (
     UPDATE {schema}.webhook_deliveries
        SET state = $4, claim_id = NULL, cause = $5, last_status = $7, last_error = $9,
            next_at = NOW() + make_interval(secs => $6),
            ended_at = CASE WHEN $4 = 'pending' THEN NULL ELSE NOW() END
      WHERE ${HELD}
     RETURNING number, generation, attempt, tenant, endpoint
   ), logged AS (
     INSERT INTO {schema}.webhook_attempts
            (delivery, generation, attempt, status, error, message, duration_ms, answer)
     SELECT number, generation, attempt, $7, $8, $9, $10, $11 FROM recorded
   ), disabled AS (
     UPDATE {schema}.webhook_endpoints AS endpoint
        SET disabled_at = NOW(), disabled_reason = 'it answered 410', updated_at = NOW()
       FROM recorded
      WHERE $5 = 'gone'
        AND endpoint.tenant = recorded.tenant
        AND endpoint.id = recorded.endpoint
        AND endpoint.url = $12
        AND endpoint.disabled_at IS NULL
     RETURNING endpoint.id
   )
   SELECT EXISTS (SELECT FROM disabled) AS is_disabled FROM recorded`,
);

export interface DeliveryRecord {
  readonly state: "delivered" | "pending" | "dead";
  readonly cause?: DeathCause;
  readonly delaySeconds?: number;
  readonly status?: number;
  readonly error?: string;
  readonly message?: string;
  readonly durationMs?: number;
  readonly answer?: string;
  /** Where it was sent. */
  readonly url?: string;
}

const RECORDED = statement(
  "delivery_was_recorded",
  `SELECT FROM {schema}.webhook_attempts
    WHERE delivery = $1 AND generation = $2 AND error IS DISTINCT FROM 'lost'`,
);

/** Whether the outcome of this claim was written. What the log has of a lost one is no outcome. */
export async function wasRecorded(
  db: Queryable,
  { number, generation }: DeliveryToken,
): Promise<boolean> {
  return (await db.query(RECORDED, [number, generation])).length === 1;
}

/** Undefined when the claim is no longer held: nothing was written. */
export async function recordDelivery(
  db: Queryable,
  token: DeliveryToken,
  record: DeliveryRecord,
): Promise<{ readonly isDisabled: boolean } | undefined> {
  const [row] = await db.query<{ is_disabled: boolean }>(RECORD, [
    token.number,
    token.generation,
    token.claimId,
    record.state,
    record.cause ?? null,
    record.delaySeconds ?? 0,
    record.status ?? null,
    record.error ?? null,
    record.message ?? null,
    record.durationMs ?? null,
    record.answer ?? null,
    record.url ?? null,
  ]);
  return row === undefined ? undefined : { isDisabled: row.is_disabled };
}

const RELEASE = statement(
  "delivery_release",
  `UPDATE {schema}.webhook_deliveries
      SET state = 'pending', claim_id = NULL, attempt = attempt - 1, next_at = NOW()
    WHERE ${HELD}
   RETURNING number`,
);

/** Gives one back that was not sent, or whose answer was not waited for. */
export async function releaseDelivery(db: Queryable, token: DeliveryToken): Promise<boolean> {
  const { number, generation, claimId } = token;
  return (await db.query(RELEASE, [number, generation, claimId])).length === 1;
}

const FORGET = statement(
  "deliveries_forget",
  `WITH old AS (
     SELECT number
       FROM {schema}.webhook_deliveries
      WHERE ended_at < NOW() - make_interval(days => $1)
      ORDER BY ended_at
      LIMIT $2
        FOR UPDATE SKIP LOCKED
   )
   DELETE FROM {schema}.webhook_deliveries AS delivery
    USING old
    WHERE delivery.number = old.number
   RETURNING delivery.number`,
);

/** Removes deliveries that ended so many days ago, with the log of their attempts. */
export async function forgetDeliveries(
  db: Queryable,
  daysKept: number,
  max: number,
): Promise<number> {
  return (await db.query(FORGET, [daysKept, max])).length;
}
