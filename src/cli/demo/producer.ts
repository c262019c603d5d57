import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { OrderBook } from "./orders.ts";

const TURN_MS = 50;
/** After a pause of the database, it goes on at its rate instead of catching up. */
const BURST_MAX = 200;
const RETRY_MS = 500;

export interface ProducerOptions {
  /** Events per second. */
  readonly rate: number;
  readonly onFailure: (error: unknown) => void;
}

/** Appends the orders of a small shop until `signal` aborts. */
export async function appendOrders(
  mill: Tidemill,
  { rate, onFailure }: ProducerOptions,
  signal: AbortSignal,
): Promise<void> {
  const book = new OrderBook();
  let last = systemClock.now();
  let due = 0;
  const turn = async (): Promise<TurnResult> => {
    const now = systemClock.now();
    due = Math.min(BURST_MAX, due + ((now - last) / 1000) * rate);
    last = now;
    const steps = book.take(Math.floor(due));
    due -= steps.length;
    const outcomes = await Promise.allSettled(
      steps.map(async (step) => {
        const expectedVersion = step.version;
        await mill.append(step.stream, [step.event], { expectedVersion });
        book.happened(step);
      }),
    );
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return { restMs: TURN_MS };
  };
  const retry = (error: unknown): number => {
    onFailure(error);
    return RETRY_MS;
  };
  await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure: retry }, signal);
}
