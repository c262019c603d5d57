import type { ClaimedPack } from "./claimed-pack.ts";
import type { LaneOwner, TaskFacts } from "./claimed-row.ts";
import type { TaskHandler } from "./queue.ts";
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
  /** Whatever was stored: SQL may have written it. */
  readonly http?: unknown;
  readonly traceParent?: string;
  readonly traceState?: string;
}

/** The tasks of one key that a worker holds. Those that wait know who is behind them. */
export interface KeyLine {
  /** Released to run and not settled. */
  running: number;
  waiting: number;
  first: ClaimedTask | undefined;
  last: ClaimedTask | undefined;
  /** Of all lines of its key space: how many wait; of one key no more than a few count. */
  readonly space: { ahead: number };
}

const NO_OPTIONS: StoredOptions = Object.freeze({});

/**
 * A task that this worker holds: claimed → started → ended (what its handler said is known) →
 * settled (the database accepted it, or refused). Decoded as it is asked for: many handlers read
 * the payload and nothing else.
 */
export class ClaimedTask implements Task {
  readonly id: string;
  readonly lane: number;
  readonly claimOrder: number;
  readonly attempt: number;
  readonly generation: number;
  readonly queue: string;
  readonly tenant: string;
  readonly priority: number;
  readonly isOnProbation: boolean;
  readonly partitionKey: string | undefined;
  /** Tells keys of different key spaces and tenants apart. Undefined for an unkeyed task. */
  readonly key: string | undefined;
  readonly claim: Claim;
  readonly handler: TaskHandler;
  /** With which it was claimed, as one of many. */
  readonly pack: TaskPack | undefined;
  /** Claimed alone, as the head of a key that is held back. */
  readonly isHeldHead: boolean;
  /** How long it had run when it was adopted from another worker; else undefined. */
  readonly ranMs: number | undefined;
  /** Until then nobody else may take it, on the worker's clock. */
  trustedUntilMs: number;
  renewedAtMs: number;
  /** For which it is renewed, when that is longer than for others. */
  leaseSeconds: number | undefined;
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
  /** The line of its key, while those behind it wait for its end. */
  releasedFrom: KeyLine | undefined;
  /** While it waits in the line of its key. */
  nextInLine: ClaimedTask | undefined;
  readonly #row: TaskFacts;
  #payload: unknown;
  #isParsed = false;

  constructor(row: TaskFacts, sources: TaskSources, claim: Claim, more: ClaimFacts) {
    this.#row = row;
    this.claim = claim;
    this.id = row.id;
    this.lane = row.lane;
    this.claimOrder = row.claimOrder;
    this.attempt = row.attempt;
    this.generation = row.generation;
    const lane = sources.laneOf(row.lane);
    const isPlain = lane !== undefined && lane.priority >= 0;
    const owner = isPlain ? lane : row.owner;
    if (owner === undefined) throw new Error(`claimed a task of lane ${row.lane}`);
    this.handler = sources.handlerOf(owner.queue);
    this.queue = this.handler.queue.name; // The same text for all: it is looked up again and again.
    this.tenant = owner.tenant;
    this.priority = owner.priority;
    this.isOnProbation = !isPlain && row.rare?.isOnProbation === true;
    this.partitionKey = isPlain ? undefined : row.partitionKey;
    const { lane: number, partitionKey } = this;
    this.key = partitionKey === undefined ? undefined : keyId(number, this.tenant, partitionKey);
    this.pack = more.pack;
    this.isHeldHead = more.isHeldHead;
    this.ranMs = more.ranMs;
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
  get kind(): string | undefined {
    return this.#row.rare?.kind;
  }
  get maxAttempts(): number {
    return this.#row.maxAttempts;
  }
  get createdAt(): Date {
    const { rare, runAtMs } = this.#row;
    return new Date(rare?.createdAtMs ?? runAtMs);
  }
  get runAt(): Date {
    return new Date(this.#row.runAtMs);
  }
  get contentType(): string {
    return this.#row.rare?.contentType ?? "application/json";
  }
  get bytes(): Buffer | undefined {
    return this.#row.rare?.bytes;
  }
  get leaseUntil(): Date {
    return this.renewedUntil ?? this.claim.until;
  }
  get options(): StoredOptions {
    const text = this.#row.rare?.options;
    if (text === undefined) return NO_OPTIONS;
    return (JSON.parse(text) as StoredOptions | null) ?? NO_OPTIONS;
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

  /** The payload as it was stored, byte by byte. */
  get payloadBytes(): Buffer {
    return this.bytes ?? Buffer.from(this.#row.payload);
  }

  get payload(): unknown {
    if (!this.#isParsed) {
      const text = this.#row.payload;
      this.#payload = text === "" ? this.bytes : JSON.parse(text);
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

export type TaskPack = ClaimedPack<ClaimedTask>;

/** Where tasks come from: most rows do not say what their lane does. */
export interface TaskSources {
  /** Undefined for the lanes of keyed tasks. */
  laneOf(lane: number): LaneOwner | undefined;
  handlerOf(queue: string): TaskHandler;
}

export interface ClaimFacts {
  readonly claimedAtMs: number;
  readonly trustedUntilMs: number;
  readonly isHeldHead: boolean;
  readonly pack?: TaskPack;
  readonly ranMs?: number;
}
