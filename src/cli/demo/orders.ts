import { randomUUID } from "node:crypto";
import type { NewEvent, StreamRef } from "../../events/event.ts";

export const ORDER = "Order";
export const PLACED = "OrderPlaced";
export const PAID = "OrderPaid";
export const SHIPPED = "OrderShipped";

const CUSTOMERS = ["Ada", "Grace", "Edsger", "Barbara", "Alan"];
const CARRIERS = ["Pony Express", "Steamboat", "Airmail"];
const OPEN_MAX = 40;

/** The next thing that happens to an order. `version` is what its stream must be at before. */
export interface Step {
  readonly stream: StreamRef;
  readonly version: number;
  readonly event: NewEvent;
}

interface OpenOrder {
  readonly id: string;
  readonly amountCents: number;
  readonly version: number;
}

/** Invents orders that are placed, then paid, then shipped, several at a time. */
export class OrderBook {
  #open: OpenOrder[] = [];

  /** Steps of different orders: they may be appended at once. */
  take(count: number): Step[] {
    const steps: Step[] = [];
    for (let taken = 0; taken < count; taken += 1) {
      const waits = this.#open.length > OPEN_MAX || Math.random() < 0.6;
      steps.push(stepOf((waits ? this.#open.shift() : undefined) ?? newOrder()));
    }
    return steps;
  }

  /** The step is in the log, so the order may go on. One that failed is forgotten. */
  happened({ stream, version, event }: Step): void {
    if (event.type === SHIPPED) return;
    const { amountCents } = event.data as { amountCents: number };
    this.#open.push({ id: stream.id, amountCents, version: version + 1 });
  }
}

function newOrder(): OpenOrder {
  return { id: randomUUID(), amountCents: 500 + Math.floor(Math.random() * 20_000), version: 0 };
}

function stepOf({ id, amountCents, version }: OpenOrder): Step {
  const event: NewEvent =
    version === 0
      ? { type: PLACED, data: { customer: pick(CUSTOMERS), amountCents } }
      : version === 1
        ? { type: PAID, data: { amountCents } }
        : { type: SHIPPED, data: { carrier: pick(CARRIERS) } };
  return { stream: { type: ORDER, id }, version, event };
}

function pick(choices: readonly string[]): string {
  return choices[Math.floor(Math.random() * choices.length)] ?? "";
}
