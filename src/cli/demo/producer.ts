import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { What } from "../../checker/history.ts";
import type { Queue } from "../../tasks/queue.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import type { Ledger } from "./ledger.ts";
import { OrderBook, PAID, REFUNDED, SHIPPED, type Step } from "./orders.ts";
import { type Label, receipts, refunds } from "./shop.ts";

const TURN_MS = 50;
/** After a pause of the database, it goes on at its rate instead of catching up. */
const BURST_MAX = 200;
const RETRY_MS = 500;
/**
 * Each holds a connection of the pool, and may need another one for a moment: queues and lanes are
 * stored beside the transaction that needs them first.
 */
const AT_ONCE_MAX = 5;

export interface ProducerOptions {
  /** Events per second, asked for at each turn. */
  readonly rate: () => number;
  readonly labels: Queue<Label>;
  readonly ledger: Ledger;
  readonly onFailure: (error: unknown) => void;
}

/** Takes the orders of a small shop until `signal` aborts. */
export async function takeOrders(
  mill: Tidemill,
  { rate, labels, ledger, onFailure }: ProducerOptions,
  signal: AbortSignal,
): Promise<void> {
  const book = new OrderBook(ledger.run);
  let last = systemClock.now();
  let due = 0;
  const turn = async (): Promise<TurnResult> => {
    const now = systemClock.now();
    due = Math.min(BURST_MAX, due + ((now - last) / 1000) * rate());
    last = now;
    const steps = book.take(Math.floor(due));
    due -= steps.length;
    for (let first = 0; first < steps.length; first += AT_ONCE_MAX) {
      const outcomes = await Promise.allSettled(
        steps.slice(first, first + AT_ONCE_MAX).map(async (step) => {
          await take(mill, step, { labels, ledger });
          book.happened(step);
        }),
      );
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    }
    return { restMs: TURN_MS };
  };
  const retry = (error: unknown): number => {
    onFailure(error);
    return RETRY_MS;
  };
  await runLoop(turn, { clock: systemClock, bell: new Bell(), onFailure: retry }, signal);
}

type Tx = Parameters<Parameters<Tidemill["transaction"]>[0]>[0];

/** What the shop has to do because of an event. */
interface Consequence {
  readonly queue: string;
  readonly key: string | undefined;
  readonly enqueue: (tx: Tx) => Promise<{ readonly id: string }>;
}

function consequenceOf(mill: Tidemill, step: Step, labels: Queue<Label>): Consequence | undefined {
  const { stream, event, name, amountCents: cents, city: to } = step;
  const order = stream.id;
  if (event.type === PAID || event.type === REFUNDED) {
    const letters = event.type === PAID ? receipts : refunds;
    const letter = { name, order, cents };
    return {
      queue: letters.name,
      key: order,
      enqueue: (tx) => mill.enqueue(letters, letter, { tx, partitionKey: order }),
    };
  }
  if (event.type !== SHIPPED) return undefined;
  const enqueue = (tx: Tx) => mill.enqueue(labels, { name, order, to }, { tx });
  return { queue: labels.name, key: undefined, enqueue };
}

/** The event and the task that it causes, in one transaction. What came of it is written down. */
async function take(
  mill: Tidemill,
  step: Step,
  { labels, ledger }: Pick<ProducerOptions, "labels" | "ledger">,
): Promise<void> {
  const { stream, version, event, name, isLast } = step;
  const consequence = consequenceOf(mill, step, labels);
  const write = (told?: { readonly positions: string[]; readonly ids: string[] }): void => {
    const names = [name];
    const phase = told === undefined ? "unknown" : "ok";
    const lines: What[] = [
      { op: "append", phase, names, ...(told === undefined ? {} : { positions: told.positions }) },
    ];
    if (consequence !== undefined) {
      const { queue, key } = consequence;
      const keys = key === undefined ? {} : { keys: [key] };
      const ids = told === undefined ? {} : { ids: told.ids };
      lines.push({ op: "enqueue", phase, queue, names, ...keys, ...ids });
    }
    ledger.add(stream.id, lines, { isOver: isLast || told === undefined });
  };
  try {
    const told = await mill.transaction(async (tx) => {
      const { positions } = await mill.append(stream, [event], { tx, expectedVersion: version });
      const task = await consequence?.enqueue(tx);
      return { positions: positions.map(String), ids: task === undefined ? [] : [task.id] };
    });
    write(told);
  } catch (error) {
    // It may be stored all the same, or not: nothing more is done with this order.
    write();
    throw error;
  }
}
