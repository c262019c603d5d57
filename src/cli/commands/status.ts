import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import { isUnavailable } from "../../db/sqlstate.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { describeError } from "../errors.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson, toJson } from "../output.ts";
import { openScreen } from "../screen.ts";
import { stopSignal, withTidemill } from "../session.ts";
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
    const status = await mill.status();
    if (flags.json === true) printJson(status);
    else print(statusLines(status, flags.all === true ? "shown" : "counted").join("\n"));
  });
}

/** Until Ctrl-C. With --json, one document per line. An outage is shown, and waited out. */
async function watch(mill: Tidemill, flags: StatusFlags): Promise<void> {
  const { signal, release } = stopSignal();
  const screen = flags.json === true ? undefined : openScreen();
  const turn = async (): Promise<TurnResult> => {
    const status = await mill.status();
    if (screen === undefined) print(toJson(status));
    else screen.draw(statusLines(status, flags.all === true ? "shown" : "counted"));
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
