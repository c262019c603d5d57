import { messageOf, wellFormed } from "../../base/errors.ts";
import { type Outcome, resultJson } from "../../tasks/outcome.ts";
import type { Act } from "../../wire/generated/tidemill/v1/worker.ts";

export type WireAct = NonNullable<Act["act"]>;

const REASON_CHARS_MAX = 4_000;
/** Most completions: one object for all of them. */
const WITHOUT_RESULT: WireAct = { $case: "complete", value: { resultJson: undefined } };
export const ABANDON: WireAct = { $case: "abandon", value: {} };

/** What a handler said, as the server is told. Throws when the result cannot be written. */
export function endOf(outcome: Outcome, resultBytesMax: number): WireAct {
  switch (outcome.kind) {
    case "completed":
      return outcome.value === undefined ? WITHOUT_RESULT : complete(outcome, resultBytesMax);
    case "failed":
      return failAct(outcome.reason, !outcome.retry);
    case "nack": {
      const { delaySeconds, reason } = outcome;
      return { $case: "nack", value: { delaySeconds, reason: shortened(reason) } };
    }
    case "abandon":
      return ABANDON;
  }
}

function complete({ value }: Outcome, bytesMax: number): WireAct {
  const result = Buffer.from(resultJson(value));
  if (result.length <= bytesMax) return { $case: "complete", value: { resultJson: result } };
  throw new RangeError(
    `the result has ${result.length} bytes, over the ${bytesMax} that a message takes; ` +
      "store it elsewhere and return a reference",
  );
}

export function failAct(reason: string, isFinal: boolean): WireAct {
  const value = { reason: shortened(reason), isFinal, isInvalidPayload: false };
  return { $case: "fail", value };
}

/** No attempt can make the payload fit. */
export function invalidAct(error: unknown): WireAct {
  const reason = shortened(messageOf(error));
  return { $case: "fail", value: { reason, isFinal: true, isInvalidPayload: true } };
}

/** A handler that threw: tried again by the queue's policy. */
export function threwAct(error: unknown): WireAct {
  return failAct(messageOf(error), false);
}

function shortened(reason: string): string {
  const text = wellFormed(reason.slice(0, REASON_CHARS_MAX));
  return text.trim() === "" ? "no message" : text;
}

/** No less than what it takes in a message, with its token. */
export function weightOfAct(act: WireAct): number {
  switch (act.$case) {
    case "complete":
      return 128 + (act.value.resultJson?.length ?? 0);
    case "fail":
    case "nack":
      return 128 + 3 * act.value.reason.length;
    case "progress":
      return 128 + act.value.valueJson.length;
    default:
      return 128;
  }
}
