import { InvalidInputError, NotFoundError } from "../../base/errors.ts";
import type { RingView } from "../../tasks/queue-admin.ts";
import { requireQueue } from "../find-queue.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { ringReport, ringsLines, type SupposedChange } from "../ring-view.ts";
import { withTidemill } from "../session.ts";
import { shortId } from "../table.ts";
import { shown } from "../text.ts";

export interface RingFlags extends GlobalFlags {
  readonly queue?: string;
  readonly tenant?: string;
  readonly key?: string;
  readonly join?: number;
  readonly leave?: string;
  readonly json?: boolean;
}

/** `tidemill ring` */
export async function showRing(flags: RingFlags): Promise<void> {
  const { queue, tenant, key, json } = flags;
  await withTidemill(flags, async (mill) => {
    const all = await mill.queues.ring();
    const change = changeOf(flags, all);
    const keySpace = queue === undefined ? undefined : (await requireQueue(mill, queue)).keySpace;
    const reports = all
      .filter((space) => keySpace === undefined || space.keySpace === keySpace)
      .filter((space) => tenant === undefined || space.tenant === tenant)
      .map((space) => ringReport(space, { key, change }));
    if (json === true) printJson(reports);
    else if (reports.length > 0) print(ringsLines(reports).join("\n"));
    else if (all.length > 0) print("No key of these was ever enqueued.");
    else print("No queue was registered yet: a worker registers those it handles.");
  });
}

function changeOf(
  { join, leave }: RingFlags,
  spaces: readonly RingView[],
): SupposedChange | undefined {
  if (join !== undefined) return { join };
  return leave === undefined ? undefined : { leave: findWorker(leave, spaces) };
}

/** By the beginning of its id, as tables show it. */
function findWorker(given: string, spaces: readonly RingView[]): string {
  const workers = new Set(spaces.flatMap(({ owners }) => owners.map((one) => one.worker)));
  const found = [...workers].filter((id) => id.startsWith(given));
  const [one] = found;
  if (one !== undefined && found.length === 1) return one;
  if (one !== undefined) {
    throw new InvalidInputError(`several workers begin with ${shown(given)}: ${found.join(", ")}`);
  }
  const names = [...workers].map(shortId).sort();
  throw new NotFoundError(
    `no worker ${shown(given)} owns buckets; ` +
      (names.length === 0 ? "nobody does" : `these do: ${names.join(", ")}`),
  );
}
