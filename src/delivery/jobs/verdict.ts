import { retryAfterSeconds } from "../retry-after.ts";
import type { News } from "./breaker.ts";

/** What became of one call: an answer, or why there is none. */
export type CallEnd =
  | { readonly status: number; readonly retryAfter: string | undefined }
  /** The egress guard does not let it out, and never will. */
  | {
      readonly refused: string;
      /** The target answered, and the guard does not follow where that leads. */
      readonly isAnswered?: boolean;
    }
  /** The network, the name, or the time that it took. */
  | { readonly failed: string };

export interface CallRules {
  /** The only answers that complete the task. Undefined: any 2xx. */
  readonly expectedStatus: readonly number[] | undefined;
  readonly now: Date;
}

/** What is to become of the task, and what the call tells of its target. */
export type JobVerdict =
  | { readonly kind: "completed"; readonly news: News }
  | { readonly kind: "failed"; readonly reason: string; readonly news: News }
  | {
      readonly kind: "retry";
      readonly reason: string;
      /** No sooner than that; 0 when nobody asked for a pause. */
      readonly afterSeconds: number;
      readonly news: News;
    };

/** Longer pauses are the task's own: a whole host is not left alone for so long. */
const PAUSE_MS_MAX = 60_000;
/** Something before the target says that it cannot be reached. */
const UNREACHABLE = [502, 503, 504];

/**
 * 2xx completes the task, or what is expected instead. 408, 425, 429, 5xx and a call without an
 * answer may pass: tried again. Any other answer would be the same again, and so would what the
 * guard refuses.
 */
export function judge(end: CallEnd, { expectedStatus, now }: CallRules): JobVerdict {
  if ("refused" in end) {
    const news = end.isAnswered === true ? "alive" : "unknown";
    return { kind: "failed", reason: end.refused, news };
  }
  if ("failed" in end) {
    return { kind: "retry", reason: end.failed, afterSeconds: 0, news: "dead" };
  }
  const { status } = end;
  const isTwo = status >= 200 && status < 300;
  const isExpected = expectedStatus === undefined ? isTwo : expectedStatus.includes(status);
  if (isExpected) return { kind: "completed", news: "alive" };
  const reason = `the target answered ${status}`;
  if (!isPassing(status)) {
    const hint = isTwo ? ", which is not an expected status" : "";
    return { kind: "failed", reason: `${reason}${hint}`, news: "alive" };
  }
  const afterSeconds = mayAsk(status) ? retryAfterSeconds(end.retryAfter, now) : 0;
  return { kind: "retry", reason, afterSeconds, news: newsOf(status, afterSeconds) };
}

const isPassing = (status: number): boolean =>
  status === 408 || status === 425 || status === 429 || (status >= 500 && status < 600);

const mayAsk = (status: number): boolean => status === 408 || status === 429 || status === 503;

function newsOf(status: number, afterSeconds: number): News {
  if (afterSeconds > 0) return { pauseMs: Math.min(afterSeconds * 1_000, PAUSE_MS_MAX) };
  return UNREACHABLE.includes(status) ? "dead" : "alive";
}
