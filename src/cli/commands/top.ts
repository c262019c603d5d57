import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import { stopSignal } from "../../base/stop-signal.ts";
import { isUnavailable } from "../../db/sqlstate.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { describeError } from "../errors.ts";
import type { GlobalFlags } from "../options.ts";
import { colors, isInteractive, isTerminal, print } from "../output.ts";
import { LiveScreen } from "../screen.ts";
import { withTidemill } from "../session.ts";
import { type Moment, ratesOf, topLine, topLines } from "../top-view.ts";

export interface TopFlags extends GlobalFlags {
  readonly interval: number;
  readonly count?: number;
}

/** Rates are told over so many looks: one alone jumps. */
const MOMENTS_MAX = 5;
const CTRL_C = "\u0003";

/** `tidemill top`: until q or Ctrl-C. In a pipe a line for each look. */
export async function runTop(flags: TopFlags): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { signal, release } = stopSignal();
    const quit = new AbortController();
    const keys = isInteractive() ? listenForQuit(quit) : undefined;
    const screen = isTerminal() ? new LiveScreen() : undefined;
    try {
      await watch(mill, flags, { screen, quit, signal: AbortSignal.any([signal, quit.signal]) });
    } finally {
      screen?.end();
      keys?.();
      release();
    }
  });
}

interface Watching {
  readonly screen: LiveScreen | undefined;
  readonly quit: AbortController;
  readonly signal: AbortSignal;
}

async function watch(mill: Tidemill, flags: TopFlags, watching: Watching): Promise<void> {
  const { screen, quit, signal } = watching;
  const restMs = flags.interval * 1_000;
  let moments: Moment[] = [];
  let looks = 0;
  const turn = async (): Promise<TurnResult> => {
    const moment = await look(mill);
    moments = [...moments, moment].slice(-MOMENTS_MAX);
    const rates = ratesOf(moments);
    if (screen === undefined) print(topLine(moment, rates));
    else screen.draw([...topLines(moment, rates), "", colors.dim("q quits")]);
    looks += 1;
    if (looks === flags.count) quit.abort();
    return { restMs };
  };
  const onFailure = (error: unknown): number => {
    if (screen === undefined || !isUnavailable(error)) throw error;
    screen.draw([describeError(error), "", colors.dim("q quits")]);
    return restMs;
  };
  await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure }, signal);
}

async function look(mill: Tidemill): Promise<Moment> {
  const [status, queues] = await Promise.all([mill.status(), mill.queues.list()]);
  return { atMs: systemClock.now(), status, queues };
}

/** Keys come one by one, so Ctrl-C is one of them. Gives the terminal back when it is called. */
function listenForQuit(quit: AbortController): () => void {
  const { stdin } = process;
  const onKeys = (keys: Buffer): void => {
    if (/[qQ]/.test(keys.toString()) || keys.includes(CTRL_C)) quit.abort();
  };
  stdin.setRawMode(true);
  stdin.on("data", onKeys);
  return () => {
    stdin.off("data", onKeys);
    stdin.setRawMode(false);
    stdin.pause();
  };
}
