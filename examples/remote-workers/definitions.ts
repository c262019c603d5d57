import { completed, queue } from "tidemill/client";

export interface Order {
  readonly number: number;
}

export const invoices = queue<Order, { cents: number }>("invoices");

/** Runs in a process without a database, and would run in one with it. */
export const writeInvoice = invoices.handle(async ({ payload }) => {
  await new Promise((resolve) => setImmediate(resolve)); // Something that takes its time.
  return completed({ cents: payload.number * 100 });
});
