import { type Consumer, consumer, type HandlerContext } from "../../consumers/consumer.ts";
import type { PersistedEvent } from "../../events/event.ts";
import {
  addRevenue,
  type DemoNames,
  type Handled,
  saveHandled,
  saveOrder,
  saveShipment,
} from "../sql/demo.ts";
import { ORDER, PAID, PLACED, REFUNDED, SHIPPED } from "./orders.ts";
import { DEMO_SCOPES } from "./shop.ts";

const STATUS: Readonly<Record<string, string>> = {
  [PLACED]: "placed",
  [PAID]: "paid",
  [SHIPPED]: "shipped",
  [REFUNDED]: "refunded",
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
        await saveHandled(tx, handled, name);
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

/** Events that a person appends may carry anything. */
function amountOf(event: PersistedEvent): number {
  const cents = Number(Reflect.get(Object(event.data), "amountCents") ?? 0);
  return Number.isSafeInteger(cents) ? cents : 0;
}

function carrierOf(event: PersistedEvent): string {
  return String(Reflect.get(Object(event.data), "carrier") ?? "unknown");
}
