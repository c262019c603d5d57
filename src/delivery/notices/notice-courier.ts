import type { WallClock } from "../../base/clock.ts";
import { messageOf, storable } from "../../base/errors.ts";
import type { Queryable } from "../../db/database.ts";
import { defaultKeys } from "../default-keys.ts";
import { EgressRefusedError } from "../egress/errors.ts";
import type { EgressGuard } from "../egress/guard.ts";
import type { CallOutcome } from "../verdict.ts";
import { type Notice, signedNotice } from "./notice.ts";
import { verdictOfNotice } from "./pause.ts";
import type { ClaimedNotice, NoticeRecord } from "./sql/notices.ts";

const ERROR_CHARS_MAX = 1_000;

export interface NoticeCourierOptions {
  readonly guard: EgressGuard;
  readonly wallClock: WallClock;
  readonly random: () => number;
}

/** Carries one claimed notice to its subscriber, once, and tells what is to be recorded of it. */
export class NoticeCourier {
  readonly #db: Queryable;
  readonly #options: NoticeCourierOptions;

  constructor(db: Queryable, options: NoticeCourierOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Rejects with the reason of `signal` if that aborts: the receiver may have it then. */
  async carry(
    row: ClaimedNotice,
    queues: Notice["queues"],
    signal: AbortSignal,
  ): Promise<NoticeRecord> {
    const { guard, wallClock, random } = this.#options;
    const { id, tenant, url, format, claim_id, failures } = row;
    const secrets = await this.#secretsOf(row);
    const now = new Date(wallClock());
    let outcome: CallOutcome;
    let seen: Pick<NoticeRecord, "status" | "error">;
    try {
      const notice = { id: claim_id, subscription: id, tenant, queues };
      const { body, headers } = signedNotice(notice, format, secrets, now);
      const { status, headers: given } = await guard.call(
        { url, method: "POST", headers, body },
        signal,
      );
      outcome = { status, retryAfter: given.get("retry-after") };
      const isFine = status >= 200 && status < 300;
      seen = { status, ...(isFine ? {} : { error: `the receiver answered ${status}` }) };
    } catch (error) {
      if (signal.aborted) throw error;
      outcome = { isRefused: error instanceof EgressRefusedError };
      seen = { error: storable(messageOf(error)).slice(0, ERROR_CHARS_MAX) };
    }
    const verdict = verdictOfNotice(outcome, failures, { now: new Date(wallClock()), random });
    return { ...verdict, ...seen, queue: queues.at(-1)?.queue ?? "" };
  }

  async #secretsOf({ tenant, secret }: ClaimedNotice): Promise<readonly string[]> {
    if (secret !== null) return [secret];
    const keys = await defaultKeys(this.#db, tenant);
    if (keys === undefined) throw new Error("the endpoint that signs was removed meanwhile");
    return keys.secrets;
  }
}
