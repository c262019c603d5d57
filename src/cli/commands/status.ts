import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import { stopSignal } from "../../base/stop-signal.ts";
import type { Status } from "../../consumers/status.ts";
import { isUnavailable } from "../../db/sqlstate.ts";
import type { QueueView } from "../../tasks/queue-admin.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { describeError } from "../errors.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson, toJson } from "../output.ts";
import { openScreen } from "../screen.ts";
import { withTidemill } from "../session.ts";
import { statusLines } from "../status-view.ts";

export interface StatusFlags extends GlobalFlags {
  readonly all?: boolean;
  readonly json?: boolean;
  readonly watch?: boolean;
}

const WATCH_MS = 1_000;

/** `tidemill status` */
export async function runStatus(flags: StatusFlags): Promise<void> {
  await withTidemill(flags, async (mill) => {
    if (flags.watch === true) {
      await watch(mill, flags);
      return;
    }
    const { status, queues } = await look(mill);
    if (flags.json === true) printJson({ ...status, queues });
    else print(linesOf(status, queues, flags).join("\n"));
  });
}

async function look(mill: Tidemill): Promise<{ status: Status; queues: QueueView[] }> {
  const [status, queues] = await Promise.all([mill.status(), mill.queues.list()]);
  return { status, queues };
}

function linesOf(status: Status, queues: readonly QueueView[], flags: StatusFlags): string[] {
  return statusLines(status, flags.all === true ? "shown" : "counted", queues);
}

/** Until Ctrl-C. With --json, one document per line. An outage is shown, and waited out. */
async function watch(mill: Tidemill, flags: StatusFlags): Promise<void> {
  const { signal, release } = stopSignal();
  const screen = flags.json === true ? undefined : openScreen();
  const turn = async (): Promise<TurnResult> => {
    const { status, queues } = await look(mill);
    if (screen === undefined) print(toJson({ ...status, queues }));
    else screen.draw(linesOf(status, queues, flags));
    return { restMs: WATCH_MS };
  };
  const onFailure = (error: unknown): number => {
    if (screen === undefined || !isUnavailable(error)) throw error;
    screen.draw([describeError(error)]);
    return WATCH_MS;
  };
  try {
    await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure }, signal);
  } finally {
    screen?.end();
    release();
  }
}
