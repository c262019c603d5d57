import { type ChildProcess, fork } from "node:child_process";
import { Bell } from "../../base/bell.ts";
import { systemClock } from "../../base/clock.ts";
import { ConflictError, messageOf, NotFoundError } from "../../base/errors.ts";
import type { Stopped } from "../../base/stop-signal.ts";
import { shortId } from "../table.ts";
import type { Refused } from "./handlers.ts";
import { DRAIN_MS, type WorkerOrder, type WorkerWord } from "./worker-process.ts";

/**
 * starting → running ⇄ paused; any of them → stopping → stopped, or → killed by a person, or →
 * failed when it ended by itself. A process is never started again: the next one has another name.
 */
export type WorkerState =
  | "starting"
  | "running"
  | "paused"
  | "stopping"
  | "stopped"
  | "killed"
  | "failed";

export interface FleetWorker {
  readonly name: string;
  readonly pid: number | undefined;
  /** In the registry, once it has begun. */
  readonly workerId: string | undefined;
  readonly state: WorkerState;
}

export interface FleetEvents {
  /** For people. */
  readonly happened: (text: string) => void;
  readonly refused: (worker: string, refused: Refused) => void;
  readonly notice: (text: string) => void;
}

export const WORKERS_MAX = 8;
/** Those that are gone stay in sight for a while. */
const GONE_MAX = 4;
/** Beyond its own patience, a process that does not end is ended. */
const STOP_MS = DRAIN_MS + 4_000;
/** How long a worker that has nothing to do is waited for. */
const PAUSE_MS_MAX = 3_000;
const COMMAND = "dev-worker";

const ALIVE: readonly WorkerState[] = ["starting", "running", "paused", "stopping"];
const isAlive = ({ state }: { readonly state: WorkerState }): boolean => ALIVE.includes(state);

/** The worker processes of the demo. None of them outlives the process that has this. */
export class Fleet implements AsyncDisposable {
  readonly #order: WorkerOrder;
  readonly #events: FleetEvents;
  #processes: WorkerProcess[] = [];
  #started = 0;
  #givenBack = 0;
  #isStopping = false;
  readonly #over = new AbortController();
  /** At an exit nobody waits: whoever is paused could not even hear that it should go. */
  readonly #abandon = (): void => {
    for (const one of this.#processes) one.child.kill("SIGKILL");
  };

  constructor(order: WorkerOrder, events: FleetEvents) {
    this.#order = order;
    this.#events = events;
    process.once("exit", this.#abandon);
  }

  get workers(): readonly FleetWorker[] {
    return this.#processes.map((one) => this.#viewOf(one));
  }

  add(): FleetWorker {
    if (this.#isStopping) throw new ConflictError("the demo is stopping");
    if (this.#processes.filter(isAlive).length >= WORKERS_MAX) {
      throw new ConflictError(`${WORKERS_MAX} workers are enough for one machine: stop one first`);
    }
    this.#started += 1;
    const one = new WorkerProcess(`worker-${this.#started}`);
    const gone = this.#processes.filter((other) => !isAlive(other)).slice(0, -GONE_MAX);
    this.#processes = [...this.#processes.filter((other) => !gone.includes(other)), one];
    this.#follow(one);
    one.child.send(this.#order);
    return this.#viewOf(one);
  }

  /** As `kill -9` does: it can do nothing more, not even say so. */
  kill(name: string): FleetWorker {
    const one = this.#find(name);
    one.state = "killed";
    one.child.kill("SIGKILL");
    this.#events.happened(`${name} was killed (kill -9, pid ${one.child.pid})`);
    return this.#viewOf(one);
  }

  /**
   * It stands still in the middle of something, and does not know it. With empty hands there would
   * be nothing to see: so it may finish nothing more than what it had begun before this.
   */
  async pause(name: string): Promise<FleetWorker> {
    const { letters } = this.#find(name, "running");
    letters.clear();
    await letters.waitAtMost(PAUSE_MS_MAX, systemClock, this.#over.signal);
    const one = this.#find(name, "running"); // Others may have been quicker.
    one.state = "paused";
    one.child.kill("SIGSTOP");
    this.#events.happened(`${name} is paused (SIGSTOP): it neither works nor renews its leases`);
    return this.#viewOf(one);
  }

  resume(name: string): FleetWorker {
    const one = this.#find(name, "paused");
    one.state = "running";
    one.child.kill("SIGCONT");
    this.#events.happened(`${name} goes on (SIGCONT) with what it had in its hands`);
    return this.#viewOf(one);
  }

  /** As a deploy does: it finishes or gives back what it has. */
  stop(name: string): FleetWorker {
    const one = this.#find(name);
    this.#events.happened(`${name} was asked to stop (SIGTERM)`);
    one.askToStop();
    return this.#viewOf(one);
  }

  /** Ends all of them, also those that are paused, and tells what they gave back. */
  async stopAll(): Promise<Stopped> {
    this.#isStopping = true;
    this.#over.abort();
    const alive = this.#processes.filter(isAlive);
    for (const one of alive) one.askToStop();
    await Promise.all(alive.map((one) => one.endWithin(STOP_MS)));
    process.off("exit", this.#abandon);
    return { givenBack: this.#givenBack };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopAll();
  }

  #viewOf({ name, child, workerId, state }: WorkerProcess): FleetWorker {
    return { name, pid: child.pid, workerId, state };
  }

  #find(name: string, expected?: WorkerState): WorkerProcess {
    const one = this.#processes.find((other) => other.name === name);
    if (one === undefined) throw new NotFoundError(`there is no worker ${JSON.stringify(name)}`);
    if (!isAlive(one) || one.state === "stopping") {
      throw new ConflictError(`${name} is ${one.state}`);
    }
    if (expected !== undefined && one.state !== expected) {
      throw new ConflictError(`${name} is ${one.state}, not ${expected}`);
    }
    return one;
  }

  #follow(one: WorkerProcess): void {
    const { happened, refused, notice } = this.#events;
    const { name, child } = one;
    child.on("message", (message) => {
      const word = message as WorkerWord;
      if (word.kind === "begun") {
        one.workerId = word.workerId;
        if (one.state === "starting") one.state = "running";
        happened(`${name} has begun (pid ${child.pid}, worker ${shortId(word.workerId)})`);
      } else if (word.kind === "letter") one.letters.ring();
      else if (word.kind === "refused") refused(name, word.refused);
      else if (word.kind === "notice") notice(`${name}: ${word.text}`);
      else this.#givenBack += word.givenBack;
    });
    void one.exited.then((code) => {
      if (one.state === "killed") return;
      const wasAsked = one.state === "stopping";
      one.state = wasAsked ? "stopped" : "failed";
      if (wasAsked) happened(`${name} has stopped`);
      else notice(`${name} ended by itself (${one.complaint || `exit code ${code}`})`);
    });
  }
}

class WorkerProcess {
  readonly name: string;
  readonly child: ChildProcess;
  /** The exit code; null when a signal ended it. */
  readonly exited: Promise<number | null>;
  state: WorkerState = "starting";
  workerId: string | undefined;
  /** Rung when it begins to write one. */
  readonly letters = new Bell();
  /** The last line that it wrote where errors go. */
  complaint = "";

  constructor(name: string) {
    this.name = name;
    const [, main = ""] = process.argv;
    this.child = fork(main, [COMMAND], { stdio: ["ignore", "ignore", "pipe", "ipc"] });
    this.exited = new Promise((resolve) => {
      this.child.once("exit", (code) => resolve(code));
      this.child.on("error", (error) => {
        this.complaint = messageOf(error);
        if (this.child.pid === undefined) resolve(null);
      });
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.complaint = text.trim().split("\n").at(-1) ?? "";
    });
  }

  askToStop(): void {
    this.state = "stopping";
    this.child.kill("SIGTERM");
    this.child.kill("SIGCONT"); // Who is paused hears nothing.
  }

  async endWithin(ms: number): Promise<void> {
    const cancel = systemClock.after(ms, () => this.child.kill("SIGKILL"));
    await this.exited;
    cancel();
  }
}
