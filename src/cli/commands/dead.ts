import { NotFoundError } from "../../base/errors.ts";
import { withoutUndefined } from "../../base/options.ts";
import type { DeadLetterFilter } from "../../tasks/dead-letters.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { confirm } from "../confirm.ts";
import { UsageError } from "../errors.ts";
import { requireQueue } from "../find-queue.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { readPayload } from "../payload.ts";
import { withTidemill } from "../session.ts";
import { formatCut } from "../table.ts";
import { pageLines, taskDocument } from "../task-view.ts";
import { many, shown } from "../text.ts";

interface Documented extends GlobalFlags {
  readonly json?: boolean;
}

export interface DeadListFlags extends Documented {
  readonly queue?: string;
  readonly key?: string;
  readonly tenant?: string;
  readonly before?: string;
  readonly limit: number;
}

export async function listDead(flags: DeadListFlags): Promise<void> {
  const { queue, key: partitionKey, tenant, before, limit } = flags;
  await withTidemill(flags, async (mill) => {
    if (queue !== undefined) await requireQueue(mill, queue);
    const options = withoutUndefined({ queue, partitionKey, tenant, before, limit });
    const dead = await mill.deadLetters.list(options);
    if (flags.json === true) printJson(dead.map(taskDocument));
    else print(pageLines(dead, limit, "No dead letter.").join("\n"));
  });
}

export interface DeadFlags extends Documented {
  readonly queue?: string;
  readonly cause?: DeadLetterFilter["cause"];
  readonly kind?: string;
  readonly key?: string;
  readonly tenant?: string;
  readonly all?: boolean;
  readonly yes?: boolean;
}

export async function redriveDead(ids: readonly string[], flags: DeadFlags): Promise<void> {
  const filter = toFilter(ids, flags);
  await withTidemill(flags, async (mill) => {
    const which = await describe(mill, filter);
    await confirm(`This runs ${which} again, with all attempts anew.`, flags);
    const redriven = await mill.deadLetters.redrive(filter);
    refuseNone(redriven, ids);
    if (flags.json === true) printJson({ redriven });
    else print(`${many(redriven, "dead letter")} will run again${ofIds(redriven, ids)}.`);
  });
}

export async function purgeDead(ids: readonly string[], flags: DeadFlags): Promise<void> {
  const filter = toFilter(ids, flags);
  await withTidemill(flags, async (mill) => {
    const which = await describe(mill, filter);
    await confirm(`This deletes ${which} for good: payloads, reasons and all.`, flags);
    const purged = await mill.deadLetters.purge(filter);
    refuseNone(purged, ids);
    if (flags.json === true) printJson({ purged });
    else print(`${many(purged, "dead letter")} deleted${ofIds(purged, ids)}.`);
  });
}

function toFilter(ids: readonly string[], flags: DeadFlags): DeadLetterFilter {
  const { queue, cause, kind, key: partitionKey, tenant, all } = flags;
  const given = withoutUndefined({
    ids: ids.length === 0 ? undefined : ids,
    queue,
    cause,
    kind,
    partitionKey,
    tenant,
  }) as DeadLetterFilter;
  const isNarrow = Object.keys(given).length > 0;
  if (isNarrow && all === true) {
    throw new UsageError("--all means every dead letter: leave it out, or the ids and filters");
  }
  if (isNarrow || all === true) return given;
  throw new UsageError(
    "which dead letters? Name ids, --queue, --cause, --kind, --key or --tenant, or say --all",
  );
}

/** In words, and how many there are where that is known. Refuses a queue that does not exist. */
async function describe(mill: Tidemill, filter: DeadLetterFilter): Promise<string> {
  const { ids, queue, cause, kind, partitionKey, tenant } = filter;
  const parts = [
    queue === undefined ? "" : ` of queue ${queue}`,
    cause === undefined ? "" : ` with cause ${cause}`,
    kind === undefined ? "" : ` of kind ${shown(kind)}`,
    partitionKey === undefined ? "" : ` of key ${shown(partitionKey)}`,
    tenant === undefined ? "" : ` of tenant ${shown(tenant)}`,
  ].join("");
  const isWholeQueue = Object.keys(filter).every((name) => name === "queue");
  const found = queue === undefined ? undefined : await requireQueue(mill, queue);
  if (ids !== undefined) return `dead letter ${ids.join(", ")}${parts}`;
  if (!isWholeQueue) return `every dead letter${parts}`;
  const queues = found === undefined ? await mill.queues.list() : [found];
  const count = queues.reduce((sum, one) => sum + one.dead, 0);
  const isCut = queues.some((one) => one.isDeadCut);
  return `every dead letter${parts} (${formatCut(count, isCut)} now)`;
}

/** Who names ids means them. */
function refuseNone(count: number, ids: readonly string[]): void {
  if (count > 0 || ids.length === 0) return;
  throw new NotFoundError(
    `there is no dead letter ${ids.join(", ")}; "tidemill dead list" shows them`,
  );
}

function ofIds(count: number, ids: readonly string[]): string {
  const missing = new Set(ids).size - count;
  return missing > 0 ? `; ${missing} of the ids named no such dead letter` : "";
}

export async function editDead(id: string, given: string, flags: Documented): Promise<void> {
  const payload = await readPayload(given);
  await withTidemill(flags, async ({ deadLetters }) => {
    await deadLetters.edit(id, payload);
    if (flags.json === true) printJson({ id, payload });
    else print(`Dead letter ${id} has a new payload. To run it: tidemill dead redrive ${id}`);
  });
}
