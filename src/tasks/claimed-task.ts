import type { ClaimedPack, PackedRow } from "./claimed-pack.ts";
import type { CommonFacts, LaneOwner, TaskFacts } from "./claimed-row.ts";
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

/** Up to this it is not worth counting them: no unit of a text takes more than three. */
const COUNTED_LENGTH = 16 * 1024;

const utf8BytesMax = (text: string): number =>
  text.length < COUNTED_LENGTH ? 3 * text.length : Buffer.byteLength(text);

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
  readonly tenant: string;
  readonly priority: number;
  readonly isOnProbation: boolean;
  readonly partitionKey: string | undefined;
  /** Tells keys of different key spaces and tenants apart. Undefined for an unkeyed task. */
  readonly key: string | undefined;
  readonly claim: Claim;
  readonly handler: TaskHandler;
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
  /** Whatever its handler keeps of it while it runs. */
  kept: unknown;
  // Thousands are held at a time, most of them in packs and never renewed: what they share they
  // point to, and what few have they get when they need it.
  readonly #common: CommonFacts;
  readonly #facts: ClaimFacts;
  readonly #stored: string | TaskFacts;
  #renewal: Renewal | undefined;
  #payload: unknown;
  #isParsed = false;

  /** @param row of a pack, or what a row says */
  constructor(row: PackedRow | TaskFacts, sources: TaskSources, claim: Claim, facts: ClaimFacts) {
    const common = "rare" in row ? row : facts.pack;
    if (common === undefined) throw new Error(`claimed a task without its pack: ${row.id}`);
    this.#common = common;
    this.#stored = "rare" in row ? row : row.payload;
    this.#facts = facts;
    this.claim = claim;
    this.id = row.id;
    this.lane = row.lane;
    this.claimOrder = row.claimOrder;
    const lane = sources.laneOf(row.lane);
    const isPlain = lane !== undefined && lane.priority >= 0;
    const owner = isPlain ? lane : row.owner;
    if (owner === undefined) throw new Error(`claimed a task of lane ${row.lane}`);
    this.handler = sources.handlerOf(owner.queue);
    this.tenant = owner.tenant;
    this.priority = owner.priority;
    this.isOnProbation = !isPlain && common.rare?.isOnProbation === true;
    this.partitionKey = isPlain ? undefined : row.partitionKey;
    const { lane: number, partitionKey } = this;
    this.key = partitionKey === undefined ? undefined : keyId(number, this.tenant, partitionKey);
  }

  /** The same text for all of a queue: it is looked up again and again. */
  get queue(): string {
    return this.handler.queue.name;
  }
  get attempt(): number {
    return this.#common.attempt;
  }
  get generation(): number {
    return this.#common.generation;
  }
  /** With which it was claimed, as one of many. */
  get pack(): TaskPack | undefined {
    return this.#facts.pack;
  }
  /** Claimed alone, as the head of a key that is held back. */
  get isHeldHead(): boolean {
    return this.#facts.isHeldHead;
  }
  /** How long it had run when it was adopted from another worker; else undefined. */
  get ranMs(): number | undefined {
    return this.#facts.ranMs;
  }
  /** Claimed by another worker, in whose slot of a limited queue it runs. */
  get isAdopted(): boolean {
    return this.#facts.ranMs !== undefined;
  }
  /** When its lease was last begun, on the worker's clock. */
  get renewedAtMs(): number {
    return this.#renewal?.atMs ?? this.#facts.claimedAtMs;
  }
  /** Until then nobody else may take it, on the worker's clock. */
  get trustedUntilMs(): number {
    return this.#renewal?.trustedUntilMs ?? this.#facts.trustedUntilMs;
  }
  /** For which it is renewed, when that is longer than for others. */
  get leaseSeconds(): number | undefined {
    return this.#renewal?.seconds;
  }
  /** As the last renewal said; before that, as the claim did. */
  get leaseUntil(): Date {
    return this.#renewal?.until ?? this.claim.until;
  }

  /** Its lease was renewed, or is known to last longer; what is not said stays. */
  renewed(change: Partial<Renewal>): void {
    const { renewedAtMs: atMs, trustedUntilMs } = this;
    const renewal: Renewal = { atMs, trustedUntilMs, ...this.#renewal, ...change };
    // Trust only grows: somebody else's answer may come later.
    renewal.trustedUntilMs = Math.max(renewal.trustedUntilMs, trustedUntilMs);
    this.#renewal = renewal;
  }

  /** For the statements that complete tasks, which take them as they are. */
  get claimId(): string {
    return this.claim.id;
  }
  get result(): string {
    return this.settlement?.kind === "complete" ? this.settlement.result : "";
  }
  get kind(): string | undefined {
    return this.#common.rare?.kind;
  }
  get maxAttempts(): number {
    return this.#common.maxAttempts;
  }
  get createdAt(): Date {
    const { rare, runAtMs } = this.#common;
    return new Date(rare?.createdAtMs ?? runAtMs);
  }
  get runAt(): Date {
    return new Date(this.#common.runAtMs);
  }
  get contentType(): string {
    return this.#common.rare?.contentType ?? "application/json";
  }
  get bytes(): Buffer | undefined {
    return this.#common.rare?.bytes;
  }
  get options(): StoredOptions {
    const text = this.#common.rare?.options;
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

  /** JSON; "" when the payload is bytes. */
  get #text(): string {
    return typeof this.#stored === "string" ? this.#stored : this.#stored.payload;
  }

  /** The payload as it was stored, letter by letter; undefined when it is bytes. */
  get payloadText(): string | undefined {
    const text = this.#text;
    return text === "" ? undefined : text;
  }

  /** No fewer bytes than all that is known of it takes. */
  get bytesMax(): number {
    const { rare } = this.#common;
    const { kind = "", contentType = "", options = "" } = rare ?? {};
    const names = this.queue.length + this.tenant.length + (this.partitionKey?.length ?? 0);
    const rest = kind.length + contentType.length + options.length;
    return (rare?.bytes?.length ?? utf8BytesMax(this.#text)) + 3 * (names + rest);
  }

  /** The payload as it was stored, byte by byte. */
  get payloadBytes(): Buffer {
    return this.bytes ?? Buffer.from(this.#text);
  }

  get payload(): unknown {
    if (!this.#isParsed) {
      const text = this.#text;
      this.#payload = text === "" ? this.bytes : JSON.parse(text);
      this.#isParsed = true;
    }
    return this.#payload;
  }

  /** Its handler has returned: what was parsed is not kept until the database answers. */
  dropPayload(): void {
    if (this.handler.queue.schema !== undefined) return; // What a schema made of it is made once.
    this.#payload = undefined;
    this.#isParsed = false;
  }

  /** What the queue's schema made of it. */
  setPayload(value: unknown): void {
    this.#payload = value;
    this.#isParsed = true;
  }
}

/** What became of the lease after the claim. */
export interface Renewal {
  /** When it was sent, on the worker's clock. */
  atMs: number;
  trustedUntilMs: number;
  /** By the database's clock. */
  until?: Date;
  seconds?: number;
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
