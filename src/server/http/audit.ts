import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { beginAct, endAct } from "../../cluster/sql/audit-log.ts";
import type { Queryable } from "../../db/database.ts";
import type { Act } from "../auth/caller.ts";
import type { Answer, Call, Endpoint } from "./endpoint.ts";
import { toProblem } from "./problem.ts";

/** What people do to what others rely on. What programs do all day is not among it. */
const AUDITED: ReadonlySet<Act> = new Set<Act>([
  "task.cancel",
  "task.retry",
  "queue.change",
  "dead.redrive",
  "dead.purge",
  "schedule.change",
  "webhook.change",
  "cluster.change",
]);

const REASON_MAX = 1_024;

/** Of a body: what is no payload, no secret and no address, and says how much was done. */
const TOLD = [
  "all",
  "cause",
  "concurrency",
  "force",
  "keyRate",
  "kind",
  "limit",
  "partitions",
  "pendingBytes",
  "pendingTasks",
  "position",
  "queue",
  "rate",
  "to",
] as const;

export interface AuditContext {
  readonly db: Queryable;
  readonly logger: Logger;
}

/**
 * Does it, and writes down who did what to what. The row is stored first: without it nothing is
 * done. When the process dies meanwhile, the row stays without a status.
 */
export async function audited(
  { db, logger }: AuditContext,
  endpoint: Endpoint,
  call: Call<unknown, unknown, unknown>,
): Promise<Answer> {
  if (!AUDITED.has(endpoint.act) || endpoint.isRoutine === true) return await endpoint.handle(call);
  const told = tellOf(endpoint, call);
  const id = await beginAct(db, told);
  const end = async (status: number): Promise<void> => {
    try {
      await endAct(db, id, status);
    } catch (error) {
      // It is done: the caller is told so, and the log has the rest.
      logger.warn({ error: messageOf(error), audit: id }, "an act was not marked as ended");
    }
  };
  try {
    const answer = await endpoint.handle(call);
    const { act, reason, ...rest } = told;
    const why = reason === undefined ? {} : { reason };
    const { status } = answer;
    logger.info({ audit: act, ...rest, ...why, status }, "somebody acted");
    await end(status);
    return answer;
  } catch (error) {
    await end(toProblem(error).status);
    throw error;
  }
}

function tellOf(
  { act, method, path }: Endpoint,
  { caller, params, body, requestId }: Call<unknown, unknown, unknown>,
) {
  const { tenant, subject, tokenId } = caller;
  return {
    act,
    call: `${method.toUpperCase()} ${path}`,
    target: { ...(params as object | undefined), ...amountOf(body) },
    reason: reasonOf(body),
    tenant,
    subject,
    tokenId,
    requestId,
  };
}

function amountOf(body: unknown): object {
  const given = (body ?? {}) as Readonly<Record<string, unknown>>;
  const told = TOLD.filter((name) => given[name] !== undefined).map((name) => {
    const value = given[name];
    return [name, typeof value === "bigint" ? String(value) : value] as const;
  });
  const { ids } = given;
  return { ...Object.fromEntries(told), ...(Array.isArray(ids) ? { ids: ids.length } : {}) };
}

function reasonOf(body: unknown): string | undefined {
  const reason = (body as { readonly reason?: unknown } | undefined)?.reason;
  return typeof reason === "string" ? reason.slice(0, REASON_MAX) : undefined;
}
