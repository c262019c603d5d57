import type { TaskHandler } from "../../tasks/queue.ts";
import type { LeaseToken, Task } from "../../tasks/task.ts";
import { Task as SentTask } from "../../wire/generated/tidemill/v1/worker.ts";
import type { Link } from "../link.ts";
import type { ReadTask } from "./task-reader.ts";

const JSON_TYPE = "application/json";

/** Of what the server says remains of a lease; a message takes its time. */
const TRUST = 0.9;

/**
 * A task that a server sent: waiting → running → ended (its act is on its way) → over. It is over
 * at once when its lease is lost, and then nothing that its handler says is sent.
 */
export class RemoteTask implements Task {
  readonly id: string;
  readonly queue: string;
  readonly token: LeaseToken;
  readonly handler: TaskHandler;
  state: "waiting" | "running" | "ended" | "over" = "waiting";
  /** By which it came, or was named last: this server renews it. */
  link: Link | undefined;
  /** Until then nobody else may have it, on the clock of this process. */
  trustedUntilMs = 0;
  /** Until then its handler goes on without a stream. Infinity: a server has it. */
  orphanUntilMs = Infinity;
  /**
   * What that was when a server was told of it, until that server says that it has it. A hello that
   * is acknowledged proves nothing: the stream may break before the task was taken over.
   */
  namedUntilMs = Infinity;
  /** When to ask for an extension, if no renewal comes. */
  renewAtMs = 0;
  /** An extension of our own is on its way. */
  isRenewing = false;
  /** Its trust ended: its handler was told to stop, and its token decides. */
  isDoubtful = false;
  /** When its handler has taken too long. Infinity: it may take as long as it wants. */
  timeoutAtMs = Infinity;
  /** Set once something asks for the handler's signal, or must abort it. */
  abort: AbortController | undefined;
  /** Acts of its handler that wait for an answer. */
  actsOpen = 0;
  /** 0: no limit. */
  readonly timeoutSeconds: number;
  readonly #read: ReadTask;
  #all: SentTask | undefined;
  #leaseUntil: Date | undefined;
  #payload: unknown;
  #isParsed = false;

  constructor(read: ReadTask, handler: TaskHandler, link: Link) {
    this.#read = read;
    this.token = read.token;
    this.id = read.token.taskId;
    this.timeoutSeconds = read.timeoutSeconds;
    this.handler = handler;
    this.queue = handler.queue.name;
    this.link = link;
  }

  /** Decoded when something of it is asked for. */
  get #sent(): SentTask {
    this.#all ??= SentTask.decode(this.#read.bytes);
    return this.#all;
  }

  get leaseUntil(): Date {
    return this.#leaseUntil ?? this.#sent.lease?.leaseUntil ?? this.runAt;
  }
  set leaseUntil(until: Date) {
    this.#leaseUntil = until;
  }
  get kind(): string | undefined {
    return textOf(this.#sent.kind);
  }
  get contentType(): string {
    return textOf(this.#read.contentType) ?? JSON_TYPE;
  }
  get bytes(): Buffer | undefined {
    return this.contentType === JSON_TYPE ? undefined : this.#read.payload;
  }
  get priority(): number {
    return this.#sent.priority;
  }
  get tenant(): string {
    return this.#sent.tenant;
  }
  get partitionKey(): string | undefined {
    return textOf(this.#sent.partitionKey);
  }
  get attempt(): number {
    return this.#sent.attempt;
  }
  get maxAttempts(): number {
    return this.#sent.maxAttempts;
  }
  get createdAt(): Date {
    return this.#sent.createdAt ?? this.runAt;
  }
  get runAt(): Date {
    return this.#sent.runAt ?? new Date(0);
  }
  get traceParent(): string | undefined {
    return textOf(this.#sent.traceParent);
  }
  get traceState(): string | undefined {
    return textOf(this.#sent.traceState);
  }

  /** Parsed when it is asked for. Throws a SyntaxError when it is no JSON. */
  get payload(): unknown {
    if (!this.#isParsed) {
      this.#payload = this.bytes ?? JSON.parse(this.#read.payload.toString("utf8"));
      this.#isParsed = true;
    }
    return this.#payload;
  }

  /** What the queue's schema made of it. */
  setPayload(value: unknown): void {
    this.#payload = value;
    this.#isParsed = true;
  }

  /** The server has said how long its lease stands. */
  trust(remainingMs: number, nowMs: number): void {
    this.trustedUntilMs = nowMs + remainingMs * TRUST;
    this.renewAtMs = nowMs + remainingMs / 2;
    this.orphanUntilMs = Infinity;
  }

  /** Whether its handler may still be called, or runs. */
  get isHeld(): boolean {
    return this.state === "waiting" || this.state === "running";
  }

  isClaim({ generation, claimId }: LeaseToken): boolean {
    return this.token.generation === generation && this.token.claimId === claimId;
  }

  stop(reason: Error): void {
    this.abort ??= new AbortController();
    this.abort.abort(reason);
  }
}

/** An empty text is one that was not given. */
const textOf = (text: string): string | undefined => (text === "" ? undefined : text);
