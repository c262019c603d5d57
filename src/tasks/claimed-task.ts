import pg from "pg";
import type { TextRow } from "../db/database.ts";
import type { TaskHandler } from "./queue.ts";
import type { Settlement } from "./sql/finish.ts";
import { keyId, type LeaseToken, type Task } from "./task.ts";

/** One claim statement and the tasks it took. */
export class Claim {
  readonly id: string;
  /** How many of its tasks have not ended. */
  open = 0;

  constructor(id: string) {
    this.id = id;
  }
}

/** What few tasks have; as in the column `options`. */
export interface StoredOptions {
  readonly backoff?: unknown;
  readonly timeoutSeconds?: number;
  readonly webhook?: string;
  readonly traceParent?: string;
  readonly traceState?: string;
}

const NO_OPTIONS: StoredOptions = Object.freeze({});
const toBytes = pg.types.getTypeParser(pg.types.builtins.BYTEA);

/**
 * A task that this worker holds: claimed → started → ended (what its handler said is known) →
 * settled (the database accepted it, or refused). Decoded as it is asked for: many handlers read
 * the payload and nothing else.
 */
export class ClaimedTask implements Task {
  readonly id: string;
  readonly lane: number;
  readonly claimOrder: number;
  readonly queue: string;
  readonly attempt: number;
  readonly generation: number;
  readonly claim: Claim;
  readonly handler: TaskHandler;
  readonly isOnProbation: boolean;
  /** Claimed alone, as the head of a key that is held back. */
  readonly isHeldHead: boolean;
  /** Until then nobody else may take it, on the worker's clock. */
  trustedUntilMs: number;
  renewedAtMs: number;
  /** As the last renewal said; before that, as the claim did. */
  renewedUntil: Date | undefined;
  startedAtMs = 0;
  state: "claimed" | "started" | "ended" | "settled" = "claimed";
  /** Set once something asks for the handler's signal, or must abort it. */
  abort: AbortController | undefined;
  /** The handler completed it in a transaction of its own. */
  isCompletedByHandler = false;
  isCancelled = false;
  /** How it ended, until the database has answered. */
  settlement: Settlement | undefined;
  /** Its end was sent before and no answer came: it may have been accepted. */
  isDoubtful = false;
  /** Released to run: those of its key behind it wait for its end. */
  holdsKey = false;
  readonly #row: TextRow;
  #payload: unknown;
  #isParsed = false;

  constructor(row: TextRow, handler: TaskHandler, claim: Claim, more: ClaimFacts) {
    this.#row = row;
    this.handler = handler;
    this.claim = claim;
    this.id = row[0] ?? "";
    this.lane = Number(row[1]);
    this.claimOrder = Number(row[2]);
    this.queue = row[3] ?? "";
    this.attempt = Number(row[11]);
    this.generation = Number(row[13]);
    this.isOnProbation = row[17] === "t";
    this.isHeldHead = more.isHeldHead;
    this.trustedUntilMs = more.trustedUntilMs;
    this.renewedAtMs = more.claimedAtMs;
  }

  /** For the statements that complete tasks, which take them as they are. */
  get claimId(): string {
    return this.claim.id;
  }
  get result(): string {
    return this.settlement?.kind === "complete" ? this.settlement.result : "";
  }
  get tenant(): string {
    return this.#row[4] ?? "";
  }
  get kind(): string | undefined {
    return this.#row[5] ?? undefined;
  }
  get priority(): number {
    return Number(this.#row[6]);
  }
  get partitionKey(): string | undefined {
    return this.#row[7] ?? undefined;
  }
  /** Tells keys of different tenants apart. Undefined for an unkeyed task. */
  get key(): string | undefined {
    const key = this.#row[7];
    return key === null || key === undefined ? undefined : keyId(this.tenant, key);
  }
  get bytes(): Buffer | undefined {
    const hex = this.#row[9];
    return hex === null || hex === undefined ? undefined : (toBytes(hex) as Buffer);
  }
  get contentType(): string {
    return this.#row[10] ?? "application/json";
  }
  get maxAttempts(): number {
    return Number(this.#row[12]);
  }
  get createdAt(): Date {
    return new Date(Number(this.#row[14]) * 1000);
  }
  get runAt(): Date {
    return new Date(Number(this.#row[15]) * 1000);
  }
  get leaseUntil(): Date {
    return this.renewedUntil ?? new Date(Number(this.#row[18]) * 1000);
  }
  get options(): StoredOptions {
    const text = this.#row[16];
    return text === null || text === undefined ? NO_OPTIONS : (JSON.parse(text) as StoredOptions);
  }
  get traceParent(): string | undefined {
    return this.options.traceParent;
  }
  get traceState(): string | undefined {
    return this.options.traceState;
  }
  get token(): LeaseToken {
    return { taskId: this.id, generation: this.generation, claimId: this.claim.id };
  }

  get payload(): unknown {
    if (!this.#isParsed) {
      const text = this.#row[8];
      this.#payload = text === null || text === undefined ? this.bytes : JSON.parse(text);
      this.#isParsed = true;
    }
    return this.#payload;
  }

  /** What the queue's schema made of it. */
  setPayload(value: unknown): void {
    this.#payload = value;
    this.#isParsed = true;
  }
}

export interface ClaimFacts {
  readonly claimedAtMs: number;
  readonly trustedUntilMs: number;
  readonly isHeldHead: boolean;
}
