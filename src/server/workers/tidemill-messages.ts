import type { Clock } from "../../base/clock.ts";
import { InvalidInputError } from "../../base/errors.ts";
import type { JsonText } from "../../base/json-text.ts";
import { isUuid } from "../../base/uuid.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { abandon, completed, failed, invalidPayload, nack } from "../../tasks/outcome.ts";
import type { LeaseToken } from "../../tasks/task.ts";
import type {
  ActAck,
  Act as GivenAct,
  LeaseToken as GivenToken,
  Lease,
  Task,
  ToWorker,
} from "../../wire/generated/tidemill/v1/worker.ts";
import type { Act } from "../auth/caller.ts";
import { failureOf } from "../failure.ts";
import { jsonOf } from "../producer/payload.ts";
import type { ActDone } from "./act-answers.ts";
import { type RemoteAct, remainingMs, timeoutMsOf } from "./remote-acts.ts";
import { LEASE_SECONDS_MAX } from "./session.ts";

const DELAY_SECONDS_MAX = 1e9;

export const say = (message: NonNullable<ToWorker["message"]>): ToWorker => ({ message });

export const refused = (requestId: bigint, error: unknown): ToWorker =>
  say({ $case: "refused", value: { requestId, failure: failureOf(error) } });

export function toTask(task: ClaimedTask, clock: Clock): Task {
  const timeoutMs = timeoutMsOf(task);
  const { traceParent = "", traceState = "" } = task.options;
  return {
    lease: toLease(task, clock),
    queue: task.queue,
    kind: task.kind ?? "",
    payload: task.payloadBytes,
    contentType: task.contentType,
    partitionKey: task.partitionKey ?? "",
    attempt: task.attempt,
    maxAttempts: task.maxAttempts,
    priority: task.priority,
    tenant: task.tenant,
    createdAt: task.createdAt,
    runAt: task.runAt,
    traceParent,
    traceState,
    timeoutSeconds: timeoutMs === Infinity ? 0 : timeoutMs / 1000,
  };
}

export const toLease = (task: ClaimedTask, clock: Clock): Lease => ({
  token: task.token,
  leaseUntil: task.leaseUntil,
  remainingMs: remainingMs(task, clock),
});

export function toAck(token: LeaseToken | undefined, answer: ActDone | Error): ActAck {
  if (answer instanceof Error) {
    return { failure: failureOf(answer), state: "", lease: undefined, delaySeconds: 0 };
  }
  const { state, delaySeconds, until, remainingMs: leftMs = 0 } = answer;
  const lease = until === undefined ? undefined : { token, leaseUntil: until, remainingMs: leftMs };
  return { failure: undefined, state, lease, delaySeconds };
}

/** An act as it is meant, and what one must be allowed for it. */
export interface ReadAct {
  readonly token: LeaseToken;
  readonly needs: Act;
  readonly act: RemoteAct;
}

/** Throws what is wrong with it. */
export function readAct(given: GivenAct, leaseSeconds: number): ReadAct {
  const token = readToken(given.token);
  const { act } = given;
  switch (act?.$case) {
    case "complete": {
      const { resultJson } = act.value;
      const value = resultJson === undefined ? undefined : readJson("result_json", resultJson);
      return { token, needs: "task.finish", act: { kind: "end", outcome: completed(value) } };
    }
    case "fail": {
      const { isFinal, isInvalidPayload } = act.value;
      const reason = readReason(act.value.reason);
      const outcome = isInvalidPayload
        ? invalidPayload(reason)
        : failed(reason, { retry: !isFinal });
      return { token, needs: "task.finish", act: { kind: "end", outcome } };
    }
    case "nack": {
      const { delaySeconds, reason } = act.value;
      const delay = readSeconds("delay_seconds", delaySeconds, Infinity);
      // Its queue says how long at most.
      const outcome = nack(Math.min(delay, DELAY_SECONDS_MAX), readReason(reason));
      return { token, needs: "task.nack", act: { kind: "end", outcome } };
    }
    case "abandon":
      return { token, needs: "task.abandon", act: { kind: "end", outcome: abandon() } };
    case "extend": {
      const asked = readSeconds("seconds", act.value.seconds, LEASE_SECONDS_MAX);
      const seconds = asked === 0 ? leaseSeconds : asked;
      return { token, needs: "task.renew", act: { kind: "extend", seconds } };
    }
    case "progress": {
      const value = readJson("value_json", act.value.valueJson);
      return { token, needs: "task.renew", act: { kind: "progress", value } };
    }
    default:
      throw new InvalidInputError("this act is not known here");
  }
}

/** Throws unless it can be the token of a claim. */
export function readToken(token: GivenToken | undefined): LeaseToken {
  const { taskId = "", generation = 0, claimId = "" } = token ?? {};
  const isId = /^[1-9]\d{0,18}$/.test(taskId) && BigInt(taskId) < 2n ** 63n;
  if (!isId || generation < 1 || generation >= 2 ** 31 || !isUuid(claimId)) {
    throw new InvalidInputError("token must be the one that came with the task");
  }
  return { taskId, generation, claimId: claimId.toLowerCase() };
}

export function readSeconds(name: string, seconds: number, max: number): number {
  if (seconds >= 0 && seconds <= max) return seconds;
  throw new InvalidInputError(`${name} must be from 0 to ${max}`);
}

function readReason(reason: string): string {
  if (reason.trim() !== "") return reason;
  throw new InvalidInputError("reason must not be blank: people read it later");
}

function readJson(name: string, bytes: Buffer): JsonText {
  const json = jsonOf(bytes);
  if (json !== undefined) return json;
  throw new InvalidInputError(`${name} must be JSON`);
}
