import type { NewEvent, StreamRef } from "../../events/event.ts";

export const ORDER = "Order";
export const PLACED = "OrderPlaced";
export const PAID = "OrderPaid";
export const SHIPPED = "OrderShipped";
export const REFUNDED = "OrderRefunded";

const CUSTOMERS = ["Ada", "Grace", "Edsger", "Barbara", "Alan"];
const CARRIERS = ["Pony Express", "Steamboat", "Airmail"];
const CITIES = ["London", "Arlington", "Rotterdam", "Los Angeles", "Wilmslow"];
/** Where no courier goes: its labels die, unless he learns the way. */
export const NOWHERE = "Atlantis";
const OPEN_MAX = 40;

/** The next thing that happens to an order. `version` is what its stream must be at before. */
export interface Step {
  readonly stream: StreamRef;
  readonly version: number;
  readonly event: NewEvent;
  /** Nobody else carries it. Also in the event. */
  readonly name: string;
  readonly amountCents: number;
  /** Where it is sent to. */
  readonly city: string;
  /** Nothing happens to the order after this. */
  readonly isLast: boolean;
}

interface OpenOrder {
  readonly id: string;
  readonly amountCents: number;
  readonly city: string;
  readonly version: number;
}

/** Invents orders that are placed, paid, then shipped or refunded, several at a time. */
export class OrderBook {
  readonly #run: string;
  #open: OpenOrder[] = [];
  #made = 0;

  /** Names of its orders begin with that. */
  constructor(run: string) {
    this.#run = run;
  }

  /** Steps of different orders: they may be appended at once. */
  take(count: number): Step[] {
    const steps: Step[] = [];
    for (let taken = 0; taken < count; taken += 1) {
      const waits = this.#open.length > OPEN_MAX || Math.random() < 0.6;
      steps.push(stepOf((waits ? this.#open.shift() : undefined) ?? this.#order()));
    }
    return steps;
  }

  /** The step is in the log, so the order may go on. One that failed is forgotten. */
  happened({ stream, version, amountCents, city, isLast }: Step): void {
    if (!isLast) this.#open.push({ id: stream.id, amountCents, city, version: version + 1 });
  }

  #order(): OpenOrder {
    this.#made += 1;
    return {
      id: `${this.#run}${this.#made}`,
      amountCents: 500 + Math.floor(Math.random() * 20_000),
      city: Math.random() < 0.02 ? NOWHERE : pick(CITIES),
      version: 0,
    };
  }
}

function stepOf({ id, amountCents, city, version }: OpenOrder): Step {
  const type = version === 0 ? PLACED : version === 1 ? PAID : fateOf(city);
  const name = `${id}/${type}`;
  const more = type === PLACED ? { customer: pick(CUSTOMERS) } : {};
  const sent = type === SHIPPED ? { carrier: pick(CARRIERS), to: city } : {};
  return {
    stream: { type: ORDER, id },
    version,
    event: { type, data: { name, amountCents, ...more, ...sent } },
    name,
    amountCents,
    city,
    isLast: version === 2,
  };
}

function fateOf(city: string): string {
  return city !== NOWHERE && Math.random() < 0.2 ? REFUNDED : SHIPPED;
}

function pick(choices: readonly string[]): string {
  return choices[Math.floor(Math.random() * choices.length)] ?? "";
}
