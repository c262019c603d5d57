import type { WorkerHelloAck } from "../../wire/generated/tidemill/v1/worker.ts";

/** What a server said of itself in its hello. */
export interface ServerTerms {
  readonly actsMax: number;
  readonly bytesMax: number;
  readonly leaseMs: number;
  readonly graceMs: number;
}

/** Before a server has said its own. */
export const FIRST_TERMS: ServerTerms = {
  actsMax: 1_000,
  bytesMax: 4 * 1024 * 1024,
  leaseMs: 60_000,
  graceMs: 2_000,
};

export function termsOf(ack: WorkerHelloAck): ServerTerms {
  return {
    actsMax: ack.actsMax || FIRST_TERMS.actsMax,
    bytesMax: ack.messageBytesMax || FIRST_TERMS.bytesMax,
    leaseMs: ack.leaseSeconds * 1000 || FIRST_TERMS.leaseMs,
    graceMs: ack.graceSeconds * 1000,
  };
}
