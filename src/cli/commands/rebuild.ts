import { pause, systemClock } from "../../base/clock.ts";
import { ConflictError } from "../../base/errors.ts";
import { stopSignal } from "../../base/stop-signal.ts";
import { rebuildName } from "../../consumers/rebuild/names.ts";
import type { RebuildStatus } from "../../consumers/rebuild/status.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { confirm } from "../confirm.ts";
import type { GlobalFlags } from "../options.ts";
import { isTerminal, print, printJson, printRaw } from "../output.ts";
import { comparisonLines, progressLine, rebuildLines } from "../rebuild-view.ts";
import { withTidemill } from "../session.ts";

interface Confirmed extends GlobalFlags {
  readonly yes?: boolean;
}

const LOOK_MS = 1_000;

export async function startRebuild(
  name: string,
  flags: GlobalFlags & {
    readonly partitions?: number;
    readonly reason?: string;
    readonly wait?: boolean;
  },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { partitions, reason } = flags;
    const status = await mill.consumers.rebuilds.start(name, {
      ...(partitions === undefined ? {} : { partitions }),
      ...(reason === undefined ? {} : { reason }),
    });
    const pieces = status.partitions.length;
    print(`Rebuild of ${name} has started, in ${pieces} partition(s) and schema ${status.schema}.`);
    if (flags.wait === true) await watch(mill, name);
  });
}

export async function showRebuild(
  name: string,
  flags: GlobalFlags & { readonly wait?: boolean; readonly json?: boolean },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    if (flags.wait === true) await watch(mill, name);
    const status = await mill.consumers.rebuilds.status(name);
    if (flags.json === true) printJson(status);
    else print(rebuildLines(status).join("\n"));
  });
}

/** Until it is where the log ended when the watch began, or somebody has seen enough. */
async function watch(mill: Tidemill, name: string): Promise<void> {
  const { signal, release } = stopSignal();
  const isDrawn = isTerminal();
  try {
    const head = await mill.latestPosition();
    for (let isDone = false; !isDone; ) {
      const status = await mill.consumers.rebuilds.status(name);
      const line = progressLine(status);
      if (isDrawn) printRaw(`\r\u001b[2K${line}`);
      else print(line);
      refuseStopped(status);
      isDone = signal.aborted || (status.progress?.position ?? head) >= head;
      if (!isDone) await pause(LOOK_MS, systemClock, signal);
    }
  } finally {
    if (isDrawn) print();
    release();
  }
}

/** It would be waited for in vain. */
function refuseStopped({ consumer, progress }: RebuildStatus): void {
  if (progress?.stopped === undefined) return;
  const why = progress.error === undefined ? "" : `: ${progress.error}`;
  throw new ConflictError(
    `the rebuild of ${consumer} is ${progress.stopped}${why}; ` +
      `"tidemill consumer rebuild resume ${consumer}" lets it go on`,
  );
}

export async function pauseRebuild(
  name: string,
  flags: GlobalFlags & { readonly reason?: string },
): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { reason } = flags;
    await consumers.pause(rebuildName(name), reason === undefined ? {} : { reason });
    print(`Rebuild of ${name} is paused; ${name} itself goes on.`);
  });
}

export async function resumeRebuild(name: string, flags: GlobalFlags): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { resumed } = await consumers.resume(rebuildName(name));
    print(`Rebuild of ${name} ${resumed > 0 ? "goes on" : "was not stopped"}.`);
  });
}

export async function compareRebuild(
  name: string,
  flags: GlobalFlags & { readonly ignore?: readonly string[]; readonly json?: boolean },
): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { ignore = [] } = flags;
    const comparison = await consumers.rebuilds.compare(name, { ignore });
    if (flags.json === true) printJson(comparison);
    else print(comparisonLines(comparison).join("\n"));
    if (!comparison.isSame) throw new ConflictError("both sides are not the same");
  });
}

export async function swapRebuild(
  name: string,
  flags: Confirmed & { readonly force?: boolean },
): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { tables } = await consumers.rebuilds.status(name);
    await confirm(`This replaces ${tables.join(", ")} by the rebuilt ones.`, flags);
    const position = await consumers.rebuilds.swap(name, { force: flags.force === true });
    print(
      `${name} has its rebuilt tables and goes on at position ${position}. The others are kept: ` +
        `"tidemill consumer rebuild rollback ${name}" brings them back, "forget" drops them.`,
    );
  });
}

export async function rollBackRebuild(name: string, flags: Confirmed): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    await confirm(
      `This brings back the tables of ${name} from before the swap; it catches up in them.`,
      flags,
    );
    await consumers.rebuilds.rollBack(name);
    const { checkpoint } = await consumers.progress(name);
    const { schema } = await consumers.rebuilds.status(name);
    print(
      `${name} has its tables from before and goes on at position ${checkpoint}. The rebuilt ` +
        `ones are in schema ${schema}: "tidemill consumer rebuild cancel ${name}" drops them.`,
    );
  });
}

export async function cancelRebuild(name: string, flags: Confirmed): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { schema } = await consumers.rebuilds.status(name);
    await confirm(`This drops the rebuilt tables of ${name} in schema ${schema}.`, flags);
    await consumers.rebuilds.cancel(name);
    print(`Rebuild of ${name} is cancelled, and its tables are dropped.`);
  });
}

export async function forgetRebuild(name: string, flags: Confirmed): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { schema } = await consumers.rebuilds.status(name);
    await confirm(`This drops the tables of ${name} from before, in schema ${schema}.`, flags);
    await consumers.rebuilds.forget(name);
    print(`The tables of ${name} from before are dropped.`);
  });
}
