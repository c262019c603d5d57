import { consumer } from "tidemill";

/** Four consumers that write down which worker handled which event. */
export const consumers = ["analytics", "billing", "email", "shipping"].map((name) =>
  consumer(name, {
    async handle(event, { tx, workerId }) {
      await tx.query("INSERT INTO handled VALUES ($1, $2, $3)", [
        name,
        String(event.position),
        workerId,
      ]);
    },
  }),
);
