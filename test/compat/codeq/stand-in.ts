import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  status,
} from "@grpc/grpc-js";
import {
  CreateAck,
  type CreateTask,
  type ServerEvent as ProducerAnswer,
  type ProducerEvent,
  ProducerStreamService,
} from "../../../src/wire/generated/codeq/producer.ts";
import {
  type Nack,
  type Ready,
  type Result,
  ResultAck,
  Task,
  type ServerEvent as WorkerAnswer,
  type WorkerEvent,
  WorkerStreamService,
} from "../../../src/wire/generated/codeq/worker.ts";

type WorkerCall = ServerDuplexStream<WorkerEvent, WorkerAnswer>;
type ProducerCall = ServerDuplexStream<ProducerEvent, ProducerAnswer>;
type WorkerBody = NonNullable<WorkerAnswer["event"]>;
type ProducerBody = NonNullable<ProducerAnswer["event"]>;

/** Refused by a status, as the contract says. */
export const BAD_TOKEN = "bad-token";
/** Refused by an error event, which clients understand as well. */
export const REFUSED_TOKEN = "refused-token";
export const GOOD_TOKEN = "good-token";
export const FORBIDDEN_COMMAND = "forbidden";

interface WaitingReady {
  readonly call: WorkerCall;
  readonly worker: string;
  readonly count: number;
}

/**
 * The least server that obeys CodeQ's rules, with its tasks in memory: it shows that the generated
 * types and grpc-js are understood by Go's clients. What it remembers is what the tests look at.
 */
export class StandIn {
  readonly metadata: Metadata[] = [];
  readonly hellos: { readonly token: string; readonly workerId?: string }[] = [];
  readonly readies: Ready[] = [];
  /** One list per message, so that batches can be told from single results. */
  readonly results: Result[][] = [];
  readonly nacks: Nack[] = [];
  readonly abandons: string[] = [];
  /** One list per message. */
  readonly creates: CreateTask[][] = [];
  readonly #server: Server;
  readonly #pending: Task[] = [];
  readonly #running = new Map<string, Task>();
  readonly #waiting: WaitingReady[] = [];
  readonly #calls = new Set<WorkerCall | ProducerCall>();
  readonly #late: CreateAck[] = [];
  #tasks = 0;
  #port = 0;

  private constructor(options: Readonly<Record<string, number>>) {
    this.#server = new Server(options);
    this.#server.addService(WorkerStreamService, {
      stream: (call: WorkerCall) => this.#serveWorker(call),
    });
    this.#server.addService(ProducerStreamService, {
      stream: (call: ProducerCall) => this.#serveProducer(call),
    });
  }

  static async start(options: Readonly<Record<string, number>> = {}): Promise<StandIn> {
    const standIn = new StandIn(options);
    const credentials = ServerCredentials.createInsecure();
    standIn.#port = await new Promise((resolve, reject) => {
      standIn.#server.bindAsync("127.0.0.1:0", credentials, (error, port) => {
        if (error === null) resolve(port);
        else reject(error);
      });
    });
    return standIn;
  }

  get url(): string {
    return `127.0.0.1:${this.#port}`;
  }

  get server(): Server {
    return this.#server;
  }

  add(payload: string): string {
    this.#tasks += 1;
    const id = String(this.#tasks);
    const [priority, maxAttempts] = [5, 3];
    const task = { id, command: "compat", payload: Buffer.from(payload), priority, maxAttempts };
    this.#pending.push(
      Task.fromPartial({ ...task, tenantId: "acme", webhook: "", createdAt: new Date(0) }),
    );
    this.#match();
    return id;
  }

  /** Ends every stream with OK, as a server does that goes away. */
  hangUp(): void {
    for (const call of this.#calls) call.end();
  }

  close(): void {
    this.#server.forceShutdown();
  }

  #serveWorker(call: WorkerCall): void {
    this.#remember(call);
    let worker: string | undefined;
    call.on("data", ({ event }: WorkerEvent) => {
      if (worker !== undefined) return this.#onWorkerEvent(call, worker, event);
      if (event?.$case !== "hello") return refuse(call, status.FAILED_PRECONDITION, NOT_HELLO);
      const { token, workerId } = event.value;
      this.hellos.push(event.value);
      if (token === BAD_TOKEN) return refuse(call, status.UNAUTHENTICATED, UNKNOWN_TOKEN);
      if (token === REFUSED_TOKEN) {
        const value = { message: UNKNOWN_TOKEN, code: "Unauthenticated" };
        return say(call, { $case: "error", value });
      }
      worker = workerId || "subject";
      say(call, { $case: "helloAck", value: { workerId: worker, tenantId: "acme" } });
    });
  }

  #onWorkerEvent(call: WorkerCall, worker: string, event: WorkerEvent["event"]): void {
    switch (event?.$case) {
      case "ready":
        return this.#onReady(call, worker, event.value);
      case "result": {
        const [ack = ResultAck.create()] = this.#settle(worker, [event.value]);
        return say(call, { $case: "resultAck", value: ack });
      }
      case "resultBatch": {
        const acks = this.#settle(worker, event.value.results);
        return say(call, { $case: "resultAckBatch", value: { acks } });
      }
      case "nack": {
        this.nacks.push(event.value);
        const { taskId, delaySeconds } = event.value;
        const ack = { ...this.#giveBack(worker, taskId), appliedDelaySeconds: delaySeconds };
        return say(call, { $case: "nackAck", value: { ...ack, dlq: false } });
      }
      case "abandon":
        this.abandons.push(event.value.taskId);
        return say(call, {
          $case: "abandonAck",
          value: this.#giveBack(worker, event.value.taskId),
        });
      case "heartbeat": {
        const value = { taskId: event.value.taskId, ok: true, errorMessage: "" };
        return say(call, { $case: "heartbeatAck", value });
      }
      case "hello":
        return sayError(call, "already-authenticated", "FailedPrecondition");
      default:
        return sayError(call, "unknown-event", "InvalidArgument");
    }
  }

  #onReady(call: WorkerCall, worker: string, ready: Ready): void {
    this.readies.push(ready);
    if (ready.commands.includes(FORBIDDEN_COMMAND)) {
      return sayError(call, "event type not allowed", "PermissionDenied");
    }
    this.#waiting.push({ call, worker, count: Math.max(1, ready.count) });
    this.#match();
  }

  /** One answer per ready, never an empty one. */
  #match(): void {
    while (this.#pending.length > 0) {
      const ready = this.#waiting.shift();
      if (ready === undefined) return;
      const tasks = this.#pending.splice(0, ready.count);
      for (const task of tasks) {
        task.workerId = ready.worker;
        task.attempts += 1;
        task.status = "IN_PROGRESS";
        task.leaseUntil = "2030-01-01T00:00:00Z";
        this.#running.set(task.id, task);
      }
      const [task] = tasks;
      if (ready.count > 1) say(ready.call, { $case: "taskBatch", value: { tasks } });
      else say(ready.call, { $case: "task", value: { task } });
    }
  }

  #settle(worker: string, results: Result[]): ResultAck[] {
    this.results.push(results);
    return results.map(({ taskId }) => {
      const task = this.#running.get(taskId);
      if (task === undefined) return { taskId, ok: false, errorMessage: "not-found" };
      if (task.workerId !== worker) return { taskId, ok: false, errorMessage: "not-owner" };
      this.#running.delete(taskId);
      return { taskId, ok: true, errorMessage: "" };
    });
  }

  /** What comes back is completed the next time, or a test would go round for ever. */
  #giveBack(worker: string, taskId: string): ResultAck {
    const task = this.#running.get(taskId);
    if (task?.workerId !== worker) return { taskId, ok: false, errorMessage: "not-owner" };
    this.#running.delete(taskId);
    this.#pending.push({ ...task, payload: Buffer.from("again") });
    this.#match();
    return { taskId, ok: true, errorMessage: "" };
  }

  #serveProducer(call: ProducerCall): void {
    this.#remember(call);
    let isKnown = false;
    call.on("data", ({ event }: ProducerEvent) => {
      if (isKnown) return this.#onProducerEvent(call, event);
      if (event?.$case !== "hello") return refuse(call, status.FAILED_PRECONDITION, NOT_HELLO);
      const { token } = event.value;
      this.hellos.push(event.value);
      if (token === BAD_TOKEN) return refuse(call, status.UNAUTHENTICATED, UNKNOWN_TOKEN);
      if (token === REFUSED_TOKEN) {
        const value = { message: UNKNOWN_TOKEN, code: "Unauthenticated" };
        return answer(call, { $case: "error", value });
      }
      isKnown = true;
      answer(call, { $case: "helloAck", value: { tenantId: "acme", subject: "robot" } });
    });
    call.on("end", () => call.end());
  }

  #onProducerEvent(call: ProducerCall, event: ProducerEvent["event"]): void {
    if (event?.$case === "create") {
      this.creates.push([event.value]);
      // Those that came together are answered last first: clients must go by the number.
      this.#late.push(this.#create(event.value));
      if (this.#late.length > 1) return;
      setImmediate(() => {
        for (const value of this.#late.splice(0).toReversed()) {
          answer(call, { $case: "createAck", value });
        }
      });
    } else if (event?.$case === "createBatch") {
      this.creates.push(event.value.tasks);
      const acks = event.value.tasks.map((task) => this.#create(task));
      answer(call, { $case: "createAckBatch", value: { acks } });
    } else {
      answer(call, {
        $case: "error",
        value: { code: "InvalidArgument", message: "unknown-event" },
      });
    }
  }

  #create({ seq, command, payload }: CreateTask): CreateAck {
    if (command.trim() === "") {
      return CreateAck.fromPartial({ seq, errorMessage: "command is required" });
    }
    return CreateAck.fromPartial({ seq, ok: true, taskId: this.add(payload.toString()) });
  }

  #remember(call: WorkerCall | ProducerCall): void {
    this.metadata.push(call.metadata);
    this.#calls.add(call);
    // A client that cancels is no error of the server's.
    call.on("error", () => {});
    call.on("close", () => this.#calls.delete(call));
  }
}

const NOT_HELLO = "first event must be Hello";
const UNKNOWN_TOKEN = "auth failed: unknown token";

function say(call: WorkerCall, event: WorkerBody): void {
  call.write({ event });
}

function sayError(call: WorkerCall, message: string, code: string): void {
  say(call, { $case: "error", value: { message, code } });
}

function answer(call: ProducerCall, event: ProducerBody): void {
  call.write({ event });
}

function refuse(call: WorkerCall | ProducerCall, code: status, details: string): void {
  call.emit("error", { code, details });
}
