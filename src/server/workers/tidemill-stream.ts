import { status } from "@grpc/grpc-js";
import {
  ConflictError,
  ForbiddenError,
  InvalidInputError,
  LimitError,
  messageOf,
  TidemillError,
} from "../../base/errors.ts";
import { uuidv4 } from "../../base/uuid.ts";
import { VERSION } from "../../base/version.ts";
import { type LeaseToken, TaskCancelledError } from "../../tasks/task.ts";
import type {
  ActAck,
  Acts,
  FromWorker,
  Act as GivenAct,
  LeaseToken as GivenToken,
  Ready,
  ToWorker,
  WorkerHello,
} from "../../wire/generated/tidemill/v1/worker.ts";
import { type Caller, isName, may, mayOnSome } from "../auth/caller.ts";
import { MESSAGE_BYTES_MAX, type Peer, type PeerHandler, StreamError } from "../grpc/peer.ts";
import { streamErrorOf } from "../grpc/status.ts";
import type { Assignment } from "./assignment.ts";
import type { OrderedQueues } from "./order-book.ts";
import {
  LEASE_SECONDS_MAX,
  TASKS_MAX,
  WorkerSession,
  type WorkerStreamOptions,
} from "./session.ts";
import {
  readAct,
  readSeconds,
  readToken,
  refused,
  say,
  toAck,
  toLease,
  toTask,
} from "./tidemill-messages.ts";

const ACTS_MAX = 1_000;
const LEASES_MAX = 1_000;
/** Parts of its queues that a worker asks for at once. */
const PARTS_MAX = 1_000;
const CANCEL_MS = 100;
/** Of a task in a message: its token, its numbers, its dates, and the tags of all fields. */
const FRAME_BYTES = 512;

/**
 * Tidemill's own worker stream; proto/tidemill/v1/worker.proto has its moves. Every act carries the
 * whole token of its claim, so it does not matter by which stream the task came.
 */
export class TidemillWorkerStream implements PeerHandler<FromWorker> {
  readonly #peer: Peer<FromWorker, ToWorker>;
  readonly #options: WorkerStreamOptions;
  readonly #session: WorkerSession;
  #queues: OrderedQueues = [];
  /** Parts of them, each always the same: orders of the same queues are one. */
  readonly #parts = new Map<string, OrderedQueues>();
  #leaseSeconds: number;
  #isLeaving = false;

  constructor(peer: Peer<FromWorker, ToWorker>, options: WorkerStreamOptions) {
    this.#peer = peer;
    this.#options = options;
    this.#leaseSeconds = options.leaseSeconds;
    this.#session = new WorkerSession(peer, options, {
      keepsOrders: true,
      frameBytes: FRAME_BYTES,
      tasks: (assignments) => {
        const tasks = assignments.map(({ task }) => toTask(task, options.clock));
        peer.send(say({ $case: "tasks", value: { tasks } }));
      },
      lost: ({ task }, why) => this.#lost(task.token, why),
      renewed: (assignments) => this.#renewed(assignments),
      unauthenticated: streamErrorOf,
    });
  }

  admit(bytes: number, entries: number): void | Promise<void> {
    return this.#session.admit(bytes, entries);
  }

  onMessage(message: FromWorker): void | Promise<void> {
    return this.#session.handle(() => this.#take(message));
  }

  #take({ message }: FromWorker): void | Promise<void> {
    const { caller } = this.#session;
    if (caller === undefined) {
      if (message?.$case === "hello") return this.#hello(message.value);
      throw new StreamError(status.INVALID_ARGUMENT, "the first message must be a hello");
    }
    switch (message?.$case) {
      case "hello":
        this.#refuse(0n, new InvalidInputError("a stream has one hello"));
        return;
      case "ready":
        return this.#ready(caller, message.value);
      case "acts":
        this.#acts(caller, message.value);
        return;
      case "leave":
        this.#isLeaving = true;
        this.#session.close();
        this.#peer.send(say({ $case: "leaveAck", value: {} }));
        return;
      default:
        this.#refuse(0n, new InvalidInputError("this message is not known here"));
    }
  }

  /** A stream that is cancelled seems to be closed by its client, and is over a moment later. */
  onHalfClose(): void {
    this.#options.clock.after(CANCEL_MS, () => {
      if (!this.#peer.isOpen) return;
      if (this.#isLeaving) this.#session.giveBack();
      else this.#session.finish();
    });
  }

  onDrain(graceMs: number): void {
    const value = { graceSeconds: graceMs / 1000, reason: "the server is stopping" };
    this.#peer.send(say({ $case: "drain", value }));
    this.#session.drain();
    // Any server takes them, by their tokens.
    this.#options.desk.departures.add(this.#session.held);
  }

  onOver(): void {
    this.#session.over();
  }

  async #hello(hello: WorkerHello): Promise<void> {
    try {
      const asked = readSeconds("lease_seconds", hello.leaseSeconds, LEASE_SECONDS_MAX);
      this.#leaseSeconds = Math.max(asked, this.#leaseSeconds);
      if (!hello.queues.every(isName)) {
        throw new InvalidInputError("queues must be names of 1 to 200 bytes");
      }
      const caller = await this.#session.enter(hello.token);
      const held = hello.held.map(readToken);
      this.#queues = queuesOf(caller, hello.queues);
      await this.#options.desk.handle(this.#queues, caller.tenant);
      this.#welcome(caller, hello);
      if (held.length === 0) return;
      const lost = await this.#session.takeBack(held, {
        may: (queue) => may(caller, "task.claim", queue),
        leaseSeconds: this.#leaseSeconds,
      });
      if (lost.length > 0) this.#sendLost(lost);
      // From here on these are this server's: before, the worker could not know.
      this.#renewed(this.#session.held.all());
    } catch (error) {
      throw streamErrorOf(error);
    }
  }

  #welcome({ tenant }: Caller, hello: WorkerHello): void {
    const workerId = hello.workerId.trim() === "" ? uuidv4() : hello.workerId.trim();
    this.#peer.welcome(tenant);
    const value = {
      workerId,
      tenant,
      server: { name: "tidemill", version: VERSION, capabilities: [] },
      leaseSeconds: this.#leaseSeconds,
      graceSeconds: this.#options.graceMs / 1000,
      actsMax: ACTS_MAX,
      messageBytesMax: MESSAGE_BYTES_MAX,
    };
    this.#peer.send(say({ $case: "helloAck", value }));
    this.#options.logger.debug({ worker: workerId, tenant }, "a worker's stream began");
  }

  async #ready(caller: Caller, { requestId, count, queues: named }: Ready): Promise<void> {
    try {
      if (this.#session.isClosed) throw new ConflictError("this stream takes no more tasks");
      if (count < 1 || count > TASKS_MAX) {
        throw new InvalidInputError(`count must be from 1 to ${TASKS_MAX}`);
      }
      const whyFull = this.#session.whyFull(count);
      if (whyFull !== undefined) throw new LimitError(whyFull);
      const queues = this.#partOf(caller, named);
      if (queues !== this.#queues) await this.#options.desk.handle(queues, caller.tenant);
      this.#session.order(queues, count, this.#leaseSeconds);
    } catch (error) {
      this.#refuse(requestId, error);
    }
  }

  #partOf(caller: Caller, named: readonly string[]): OrderedQueues {
    if (named.length === 0) return this.#queues;
    const key = JSON.stringify([...new Set(named)].sort());
    let part = this.#parts.get(key);
    if (part === undefined) {
      const all = this.#queues;
      const isOurs = (name: string): boolean =>
        all === "all" ? isName(name) && may(caller, "task.claim", name) : all.includes(name);
      const other = named.find((name) => !isOurs(name));
      if (other !== undefined) {
        throw new InvalidInputError(`${JSON.stringify(other)} is no queue of the hello`);
      }
      part = JSON.parse(key) as string[];
      if (this.#parts.size >= PARTS_MAX) this.#parts.clear();
      this.#parts.set(key, part);
    }
    return part;
  }

  #acts(caller: Caller, { requestId, acts }: Acts): void {
    if (acts.length > ACTS_MAX) {
      this.#refuse(requestId, new InvalidInputError(`a message has at most ${ACTS_MAX} acts`));
      return;
    }
    const answered = this.#session.answerLater();
    const acks: ActAck[] = [];
    let open = acts.length + 1;
    const count = (): void => {
      open -= 1;
      if (open > 0) return;
      this.#peer.send(say({ $case: "actsAck", value: { requestId, acks } }));
      answered();
    };
    for (const [place, act] of acts.entries()) {
      this.#act(caller, act, (ack) => {
        acks[place] = ack;
        count();
      });
    }
    count();
  }

  #act(caller: Caller, given: GivenAct, onAck: (ack: ActAck) => void): void {
    try {
      const { token, needs, act } = readAct(given, this.#leaseSeconds);
      if (!mayOnSome(caller, needs)) throw new ForbiddenError(`this token may not ${needs}`);
      const { tenant } = caller;
      const actor = { tenant, may: (queue: string) => may(caller, needs, queue) };
      this.#options.acts.act(actor, token, act, (answer) => {
        if (answer instanceof Error && !(answer instanceof TidemillError)) {
          this.#options.logger.error({ error: messageOf(answer) }, "an act of a worker failed");
        }
        onAck(toAck(token, answer));
      });
    } catch (error) {
      onAck(toAck(undefined, error instanceof Error ? error : new Error(messageOf(error))));
    }
  }

  #lost(token: LeaseToken, why: Error): void {
    if (why instanceof TaskCancelledError) {
      this.#peer.send(say({ $case: "cancel", value: { token, reason: why.message } }));
    } else this.#sendLost([token]);
  }

  #sendLost(tokens: GivenToken[]): void {
    this.#peer.send(say({ $case: "leaseLost", value: { tokens } }));
  }

  #renewed(assignments: readonly Assignment[]): void {
    for (let from = 0; from < assignments.length; from += LEASES_MAX) {
      const some = assignments.slice(from, from + LEASES_MAX);
      const leases = some.map(({ task }) => toLease(task, this.#options.clock));
      this.#peer.send(say({ $case: "renewed", value: { leases } }));
    }
  }

  #refuse(requestId: bigint, error: unknown): void {
    this.#peer.send(refused(requestId, error));
  }
}

/** Those that were named, each allowed; else all that the caller is for. */
function queuesOf(caller: Caller, named: readonly string[]): OrderedQueues {
  if (!mayOnSome(caller, "task.claim")) {
    throw new ForbiddenError('this token lacks scope "worker"');
  }
  const other = named.find((name) => !may(caller, "task.claim", name));
  if (other !== undefined) {
    throw new ForbiddenError(`this token is not for queue ${JSON.stringify(other)}`);
  }
  if (named.length > 0) return [...new Set(named)];
  return caller.queues === "all" ? "all" : [...caller.queues];
}
