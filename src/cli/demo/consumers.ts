import { type Consumer, consumer, type HandlerContext } from "../../consumers/consumer.ts";
import type { PersistedEvent } from "../../events/event.ts";
import {
  addRevenue,
  type DemoNames,
  type Handled,
  saveOrder,
  saveReceipt,
  saveShipment,
} from "../sql/demo.ts";
import { ORDER, PAID, PLACED, SHIPPED } from "./orders.ts";

const STATUS: Readonly<Record<string, string>> = {
  [PLACED]: "placed",
  [PAID]: "paid",
  [SHIPPED]: "shipped",
};

/** What each consumer of the demo handles. */
export const DEMO_SCOPES: Readonly<Record<string, readonly string[]>> = {
  order_view: [PLACED, PAID, SHIPPED],
  revenue: [PAID],
  shipping: [SHIPPED],
};

/**
 * Three readers of one log: a table of orders, a sum, and one that cares for shipped orders only.
 * Each writes in the transaction that also moves its checkpoint, so each effect happens once.
 */
export function demoConsumers(names: DemoNames): Consumer[] {
  const define = (
    name: string,
    handle: (tx: HandlerContext["tx"], handled: Handled) => Promise<void>,
  ): Consumer =>
    consumer(name, {
      aggregateTypes: [ORDER],
      eventTypes: DEMO_SCOPES[name] ?? [],
      async handle(event, { tx }) {
        const handled = { names, event, amountCents: amountOf(event) };
        await handle(tx, handled);
        await saveReceipt(tx, handled, name);
      },
    });
  return [
    define("order_view", (tx, handled) =>
      saveOrder(tx, handled, STATUS[handled.event.type] ?? "unknown"),
    ),
    define("revenue", addRevenue),
    define("shipping", (tx, handled) => saveShipment(tx, handled, carrierOf(handled.event))),
  ];
}

function amountOf(event: PersistedEvent): number {
  return Number(Reflect.get(Object(event.data), "amountCents") ?? 0);
}

function carrierOf(event: PersistedEvent): string {
  return String(Reflect.get(Object(event.data), "carrier") ?? "unknown");
}
