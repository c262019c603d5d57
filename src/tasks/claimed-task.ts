import pg from "pg";
import type { TaskHandler } from "./queue.ts";
import { FIELD } from "./sql/claim.ts";
import type { Settlement } from "./sql/finish.ts";
import { keyId, type LeaseToken, type Task } from "./task.ts";

/** One claim statement and the tasks it took. */
export class Claim {
  readonly id: string;
  /** By the database's clock; what is renewed lasts longer. */
  until = new Date(0);
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
  readonly #row: string;
  readonly #options: string;
  readonly #restAt: number;
  #rest: readonly string[] | undefined;
  #payload: unknown;
  #isParsed = false;

  constructor(row: string, find: FindHandler, claim: Claim, more: ClaimFacts) {
    this.#row = row;
    this.claim = claim;
    const reader = new FieldReader(row);
    this.id = reader.next();
    this.lane = Number(reader.next());
    this.claimOrder = Number(reader.next());
    this.attempt = Number(reader.next());
    this.generation = Number(reader.next());
    this.isOnProbation = reader.next() === "t";
    this.queue = reader.next();
    this.#options = reader.next();
    this.#restAt = reader.at;
    this.handler = find(this.queue);
    this.isHeldHead = more.isHeldHead;
    this.trustedUntilMs = more.trustedUntilMs;
    this.renewedAtMs = more.claimedAtMs;
  }

  /** What few handlers ask for: split when the first of it is asked for. */
  #field(place: number): string | undefined {
    this.#rest ??= this.#row.slice(this.#restAt).split(FIELD);
    return this.#rest[place] || undefined;
  }

  /** For the statements that complete tasks, which take them as they are. */
  get claimId(): string {
    return this.claim.id;
  }
  get result(): string {
    return this.settlement?.kind === "complete" ? this.settlement.result : "";
  }
  get tenant(): string {
    return this.#field(0) ?? "";
  }
  get partitionKey(): string | undefined {
    return this.lane < 0 ? this.#field(1) : undefined;
  }
  /** Tells keys of different tenants apart. Undefined for an unkeyed task. */
  get key(): string | undefined {
    const { partitionKey } = this;
    return partitionKey === undefined ? undefined : keyId(this.tenant, partitionKey);
  }
  get priority(): number {
    return Number(this.#field(2));
  }
  get kind(): string | undefined {
    return this.#field(3);
  }
  get maxAttempts(): number {
    return Number(this.#field(4));
  }
  get createdAt(): Date {
    return new Date(Number(this.#field(5)) * 1000);
  }
  get runAt(): Date {
    return new Date(Number(this.#field(6)) * 1000);
  }
  get contentType(): string {
    return this.#field(7) ?? "application/json";
  }
  get bytes(): Buffer | undefined {
    const hex = this.#field(8);
    return hex === undefined ? undefined : (toBytes(hex) as Buffer);
  }
  get leaseUntil(): Date {
    return this.renewedUntil ?? this.claim.until;
  }
  get options(): StoredOptions {
    if (this.#options === "") return NO_OPTIONS;
    return (JSON.parse(this.#options) as StoredOptions | null) ?? NO_OPTIONS;
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
      const text = this.#field(9);
      this.#payload = text === undefined ? this.bytes : JSON.parse(text);
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

export type FindHandler = (queue: string) => TaskHandler;

/** The first fields of a row, one after another. */
class FieldReader {
  readonly #row: string;
  at = 0;

  constructor(row: string) {
    this.#row = row;
  }

  next(): string {
    const end = this.#row.indexOf(FIELD, this.at);
    const field = this.#row.slice(this.at, end);
    this.at = end + 1;
    return field;
  }
}

export interface ClaimFacts {
  readonly claimedAtMs: number;
  readonly trustedUntilMs: number;
  readonly isHeldHead: boolean;
}
