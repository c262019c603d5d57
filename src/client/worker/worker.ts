import { pause } from "../../base/clock.ts";
import { type TidemillError, UnavailableError } from "../../base/errors.ts";
import type { Stopped } from "../../base/stop-signal.ts";
import type { Ambience } from "../connection-options.ts";
import { Line, notConnected } from "../line.ts";
import {
  type RemoteWorkerOptions,
  type ResolvedWorkerOptions,
  resolveWorkerOptions,
} from "./worker-options.ts";
import { WorkerSession } from "./worker-session.ts";

/** How long the last acknowledgements may take once no handler runs. */
const ANSWERS_MS = 5_000;
/** How long a server may take to end a stream that has nothing under way. */
const GOODBYE_MS = 2_000;

/** What a worker has on its hands. */
export interface RemoteWorkerLoad {
  readonly isConnected: boolean;
  /** Handlers that have not returned. */
  readonly running: number;
  /** Tasks that wait here for a slot. */
  readonly waiting: number;
  /** Acts that the server has not acknowledged. */
  readonly unanswered: number;
}

/**
 * Runs handlers for tasks that a server hands out. It finds another server when one is lost, and
 * says there how its tasks ended.
 */
export class RemoteWorker implements AsyncDisposable {
  /** Settles when it has stopped; rejects when a server refuses it for good. */
  readonly finished: Promise<void>;
  readonly #options: ResolvedWorkerOptions;
  readonly #session: WorkerSession;
  readonly #line: Line<unknown>;
  readonly #known: Promise<void>;
  #resolveKnown: () => void = () => {};
  #rejectKnown: (error: TidemillError) => void = () => {};
  #resolveFinished: () => void = () => {};
  #rejectFinished: (error: TidemillError) => void = () => {};
  #onLess: (() => void) | undefined;
  #stopping: Promise<Stopped> | undefined;
  #failure: TidemillError | undefined;

  private constructor(options: RemoteWorkerOptions, ambience: Ambience) {
    this.#options = resolveWorkerOptions(options, ambience);
    this.#known = new Promise((resolve, reject) => {
      this.#resolveKnown = resolve;
      this.#rejectKnown = reject;
    });
    this.finished = new Promise((resolve, reject) => {
      this.#resolveFinished = resolve;
      this.#rejectFinished = reject;
    });
    this.#known.catch(() => {});
    this.finished.catch(() => {}); // Observed by whoever awaits it.
    this.#session = new WorkerSession(this.#options, {
      onKnown: () => this.#resolveKnown(),
      onFailed: (error) => this.#fail(error),
      onDrain: (link) => this.#line.replace(link),
      onLess: () => this.#onLess?.(),
    });
    this.#line = new Line(this.#session, this.#options.line);
  }

  /** Resolves when a server knows it. */
  static async connect(
    options: RemoteWorkerOptions,
    ambience: Ambience = {},
  ): Promise<RemoteWorker> {
    const worker = new RemoteWorker(options, ambience);
    const { clock, connectMs } = worker.#options.line;
    worker.#line.open();
    const cancel = clock.after(connectMs, () => {
      worker.#rejectKnown(notConnected(connectMs / 1000, worker.#line.lastEnd));
    });
    try {
      await worker.#known;
      return worker;
    } catch (error) {
      worker.#line.close();
      worker.#session.close(new UnavailableError("the worker never connected"));
      throw error;
    } finally {
      cancel();
    }
  }

  get workerId(): string {
    return this.#session.workerId;
  }

  get load(): RemoteWorkerLoad {
    const { isConnected, running, waiting, unanswered } = this.#session;
    return { isConnected, running, waiting, unanswered };
  }

  /**
   * Takes no more tasks, gives back what has not started, and waits for the handlers that run.
   * Those that outlast `drainSeconds` are aborted, and their tasks given back uncounted: tells how
   * many.
   */
  stop(): Promise<Stopped> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<Stopped> {
    const session = this.#session;
    const isFailed = (): boolean => this.#failure !== undefined;
    session.leave();
    await this.#until(() => session.running === 0 || isFailed(), this.#options.drainMs);
    const givenBack = session.abortAll();
    await this.#until(() => session.unanswered === 0 || isFailed(), ANSWERS_MS);
    await this.#line.hangUp(GOODBYE_MS);
    session.close(new UnavailableError("the worker has stopped"));
    this.#resolveFinished();
    return { givenBack };
  }

  /** Waits for the fact, at most so long. */
  async #until(isSo: () => boolean, ms: number): Promise<void> {
    if (isSo() || ms <= 0) return;
    const over = new AbortController();
    this.#onLess = () => {
      if (isSo()) over.abort();
    };
    await pause(ms, this.#options.line.clock, over.signal);
    this.#onLess = undefined;
  }

  #fail(error: TidemillError): void {
    this.#failure = error;
    this.#rejectKnown(error);
    this.#rejectFinished(error);
    this.#session.close(error);
    this.#onLess?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** Connects a worker: resolves when a server has accepted its token, and tasks may come. */
export async function connectWorker(options: RemoteWorkerOptions): Promise<RemoteWorker> {
  return await RemoteWorker.connect(options);
}
