import type { Clock, WallClock } from "../base/clock.ts";
import { messageOf, storable, TidemillError, wellFormed } from "../base/errors.ts";
import type { Queryable } from "../db/database.ts";
import { DEFAULT_ENDPOINT } from "../tasks/webhook-name.ts";
import { defaultKeys } from "./default-keys.ts";
import { EgressRefusedError } from "./egress/errors.ts";
import type { EgressGuard, EgressResponse } from "./egress/guard.ts";
import { signedMessage, type WebhookEvent } from "./message.ts";
import type { ClaimedRow, DeliveryRecord } from "./sql/deliveries.ts";
import type { EndpointKeys } from "./sql/endpoints.ts";
import { type CallOutcome, type DeathCause, verdictOf } from "./verdict.ts";

/** Of an answer, in characters: enough to see what the receiver complained about. */
const ANSWER_CHARS_MAX = 1_024;
const MESSAGE_CHARS_MAX = 1_000;

export interface CourierOptions {
  readonly guard: EgressGuard;
  readonly attemptsMax: number;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly random: () => number;
}

/** Carries one claimed delivery to its receiver, once, and tells what is to be recorded of it. */
export class Courier {
  readonly #db: Queryable;
  readonly #options: CourierOptions;

  constructor(db: Queryable, options: CourierOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Rejects with the reason of `signal` if that aborts: the receiver may have the message then. */
  async carry(row: ClaimedRow, signal: AbortSignal): Promise<DeliveryRecord> {
    const { attemptsMax } = this.#options;
    if (row.attempt > attemptsMax) {
      return dead("attempts_exhausted", "its senders ended before they could tell, too often");
    }
    const keys = await this.#keysOf(row);
    const { url } = row;
    if (keys === undefined || url === null) {
      const what = `there is no endpoint ${JSON.stringify(row.endpoint)} with an address`;
      return dead("no_endpoint", `${what}: put it, then redeliver`);
    }
    if (keys.disabled_reason !== null) {
      return dead("disabled", `the endpoint is disabled: ${keys.disabled_reason}`);
    }
    return await this.#send(row, url, keys, signal);
  }

  async #send(
    row: ClaimedRow,
    url: string,
    { format, secrets }: EndpointKeys,
    signal: AbortSignal,
  ): Promise<DeliveryRecord> {
    const { guard, clock, wallClock } = this.#options;
    const startedMs = clock.now();
    let seen: Pick<DeliveryRecord, "status" | "error" | "message" | "answer">;
    let outcome: CallOutcome;
    try {
      const now = new Date(wallClock());
      const { body, headers } = signedMessage(toEvent(row), format, secrets, now);
      const response = await guard.call({ url, method: "POST", headers, body }, signal);
      const { status } = response;
      outcome = { status, retryAfter: response.headers.get("retry-after") };
      const isFine = status >= 200 && status < 300;
      seen = {
        status,
        ...(isFine ? {} : { message: `the receiver answered ${status}` }),
        ...answerOf(response),
      };
    } catch (error) {
      if (signal.aborted) throw error;
      outcome = { isRefused: error instanceof EgressRefusedError };
      seen = {
        error: error instanceof TidemillError ? error.code : "internal",
        message: messageOf(error).slice(0, MESSAGE_CHARS_MAX),
      };
    }
    const durationMs = Math.round(clock.now() - startedMs);
    return { ...this.#judge(row, outcome), ...seen, durationMs, url };
  }

  #judge(row: ClaimedRow, outcome: CallOutcome): Pick<DeliveryRecord, "state"> {
    const { attemptsMax, wallClock, random } = this.#options;
    const now = new Date(wallClock());
    return verdictOf(outcome, { attempt: row.attempt, attemptsMax, now, random });
  }

  /** Undefined when there is no such endpoint. The default one is made when it is first needed. */
  async #keysOf(row: ClaimedRow): Promise<EndpointKeys | undefined> {
    const { tenant, endpoint, format, secrets, disabled_reason } = row;
    if (format !== null && secrets !== null) return { format, secrets, disabled_reason };
    if (endpoint !== DEFAULT_ENDPOINT || row.url === null) return undefined;
    return await defaultKeys(this.#db, tenant);
  }
}

export function toEvent(row: ClaimedRow): WebhookEvent {
  return {
    id: row.id,
    type: row.type,
    tenant: row.tenant,
    taskId: row.task_id,
    at: row.at,
    task: row.task,
    result: row.result ?? undefined,
    reason: row.reason ?? undefined,
  };
}

function dead(cause: DeathCause, message: string): DeliveryRecord {
  return { state: "dead", cause, error: cause, message };
}

function answerOf({ body }: EgressResponse): { readonly answer?: string } {
  if (body.length === 0) return {};
  const text = storable(body.toString("utf8")).slice(0, ANSWER_CHARS_MAX);
  return { answer: wellFormed(text) };
}
