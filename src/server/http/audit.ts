import type { Logger } from "../../base/log.ts";
import type { Act } from "../auth/caller.ts";
import type { Call, Endpoint } from "./endpoint.ts";

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

/** Writes down who did what to what. Nothing of a payload is in it. */
export function audit(
  logger: Logger,
  { act, method, path }: Endpoint,
  { caller, params, body, requestId }: Call<unknown, unknown, unknown>,
  status: number,
): void {
  if (!AUDITED.has(act)) return;
  const { tenant, subject, tokenId } = caller;
  const reason = reasonOf(body);
  logger.info(
    {
      audit: act,
      call: `${method.toUpperCase()} ${path}`,
      target: params ?? {},
      ...(reason === undefined ? {} : { reason }),
      tenant,
      subject,
      tokenId,
      requestId,
      status,
    },
    "somebody acted",
  );
}

function reasonOf(body: unknown): string | undefined {
  const reason = (body as { readonly reason?: unknown } | undefined)?.reason;
  return typeof reason === "string" ? reason.slice(0, REASON_MAX) : undefined;
}
