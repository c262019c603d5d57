import {
  type Consumer,
  type ConsumerOptions,
  consumer,
  type HandlerContext,
  type PersistedEvent,
} from "../../src/index.ts";

/** For handlers that do more than to record. */
export async function recordHandled(event: PersistedEvent, context: HandlerContext): Promise<void> {
  await context.tx.query("INSERT INTO handled (consumer, position, worker) VALUES ($1, $2, $3)", [
    context.consumer,
    String(event.position),
    context.workerId,
  ]);
}

/** A consumer that writes each event it handles to `handled`, through its transaction. */
export function recording(name: string, options: Partial<ConsumerOptions> = {}): Consumer {
  return consumer(name, { handle: recordHandled, ...options });
}
