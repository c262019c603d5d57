import { NotFoundError } from "../base/errors.ts";
import type { QueueView } from "../tasks/queue-admin.ts";
import type { Tidemill } from "../worker/tidemill.ts";

/** A queue that is only a filter, or a name to act on: a typo must not look like an empty one. */
export async function requireQueue(mill: Tidemill, name: string): Promise<QueueView> {
  const queues = await mill.queues.list();
  const found = queues.find((one) => one.name === name);
  if (found !== undefined) return found;
  const names = queues.map((one) => `"${one.name}"`).slice(0, 20);
  throw new NotFoundError(
    `there is no queue "${name}"; ` +
      (names.length === 0 ? "none is registered yet" : `registered are ${names.join(", ")}`),
  );
}
