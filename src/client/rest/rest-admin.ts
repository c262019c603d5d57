import { refuseUnknown } from "../../base/options.ts";
import type { LimitChanges, Limits } from "../../tasks/limits.ts";
import type { HttpCaller, RestCall } from "./http-call.ts";
import { pathOf, type TaskRecord } from "./rest-tasks.ts";

/** A queue as the server shows it; counts are of all tenants and for admins only. */
export interface QueueRecord {
  readonly name: string;
  readonly isPaused: boolean;
  readonly pauseReason?: string;
  readonly limits: Limits;
  readonly keySpace?: string;
  readonly depths?: Readonly<Record<string, number>>;
  readonly running?: number;
  /** Counted up to 10,000. */
  readonly dead?: number;
  /** Whether counting ended there: there may be more. */
  readonly isDeadCut?: boolean;
  readonly oldestPendingSeconds?: number;
}

/** Queues, over HTTP. Changes need an admin's token. */
export class RestQueues {
  readonly #http: HttpCaller;

  constructor(http: HttpCaller) {
    this.#http = http;
  }

  async list(): Promise<QueueRecord[]> {
    return ((await this.#http.call({ path: "/v1/queues" })).body as { queues: QueueRecord[] })
      .queues;
  }

  async get(name: string): Promise<QueueRecord> {
    return await this.#queue({ path: pathOf("queues", name) });
  }

  /** Registers it with default settings, unless it is there. */
  async ensure(name: string): Promise<QueueRecord> {
    return await this.#queue({ method: "PUT", path: pathOf("queues", name) });
  }

  /** Nothing more of it is claimed. */
  async pause(name: string, reason?: string): Promise<QueueRecord> {
    return await this.#queue({
      method: "POST",
      path: pathOf("queues", name, "pause"),
      body: reason === undefined ? {} : { reason },
      isRepeatable: true,
    });
  }

  async resume(name: string): Promise<QueueRecord> {
    const path = pathOf("queues", name, "resume");
    return await this.#queue({ method: "POST", path, isRepeatable: true });
  }

  /** `null` lifts a limit; one that is left out stays. */
  async setLimits(name: string, limits: LimitChanges): Promise<QueueRecord> {
    return await this.#queue({
      method: "PUT",
      path: pathOf("queues", name, "limits"),
      body: limits,
    });
  }

  /** The limits of the definition hold again. */
  async resetLimits(name: string): Promise<QueueRecord> {
    return await this.#queue({ method: "DELETE", path: pathOf("queues", name, "limits") });
  }

  async #queue(call: RestCall): Promise<QueueRecord> {
    return (await this.#http.call(call)).body as QueueRecord;
  }
}

/** Which dead letters: at least one of these. */
export interface DeadLetterSelection {
  readonly all?: true;
  readonly ids?: readonly string[];
  readonly queue?: string;
  readonly cause?: "attempts_exhausted" | "worker_lost" | "invalid_payload";
  readonly kind?: string;
  readonly partitionKey?: string;
  readonly limit?: number;
}

/** Dead letters, over HTTP. */
export class RestDeadLetters {
  readonly #http: HttpCaller;

  constructor(http: HttpCaller) {
    this.#http = http;
  }

  async list(
    filter: {
      readonly queue?: string;
      readonly partitionKey?: string;
      readonly cursor?: string;
      readonly limit?: number;
    } = {},
  ): Promise<{ deadLetters: TaskRecord[]; cursor?: string }> {
    refuseUnknown("filter", filter, ["queue", "partitionKey", "cursor", "limit"]);
    const { body } = await this.#http.call({ path: "/v1/dead-letters", query: { ...filter } });
    return body as { deadLetters: TaskRecord[]; cursor?: string };
  }

  /** Runs them again with all their attempts. While `hasMore`, call it again. */
  async redrive(which: DeadLetterSelection): Promise<{ redriven: number; hasMore: boolean }> {
    const path = pathOf("dead-letters", "redrive");
    const { body } = await this.#http.call({ method: "POST", path, body: which });
    return body as { redriven: number; hasMore: boolean };
  }

  /** Deletes them for good. While `hasMore`, call it again. */
  async purge(which: DeadLetterSelection): Promise<{ purged: number; hasMore: boolean }> {
    const path = pathOf("dead-letters", "purge");
    const { body } = await this.#http.call({ method: "POST", path, body: which });
    return body as { purged: number; hasMore: boolean };
  }
}
