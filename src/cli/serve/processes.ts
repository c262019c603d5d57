import cluster, { type Worker } from "node:cluster";
import { exponentialMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { EXIT_GAVE_BACK } from "../../base/stop-signal.ts";
import { environmentOf, isServing, stopMessage } from "./shared-ports.ts";

export interface ProcessesOptions {
  readonly count: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Of `stopSignal`, which was there before the processes were started. */
  readonly signal: AbortSignal;
}

const RESTART_MS = 500;
const RESTART_MS_MAX = 30_000;
/** One that served for so long was no failure of the start. */
const STEADY_MS = 60_000;

/** One of the servers, whichever process it is by now. */
interface Seat {
  readonly number: number;
  process: Worker | undefined;
  servingSinceMs: number | undefined;
  failures: number;
}

/**
 * Servers that share their ports, each a process of its own: starting → serving → stopping → gone.
 * This process hands connections out in turn, and does nothing else. The servers know of each
 * other what any servers on one database do: nothing that is not there.
 *
 * - A server that dies is started again. What it held is handed out when its leases end.
 * - One that cannot start, before all of them have served once, stops the others: a flag, a file or
 *   a port is wrong, and would be wrong again.
 * - When this process dies, the others lose their channel to it and end at once, as if killed.
 */
export class ServerProcesses {
  readonly #options: ProcessesOptions;
  readonly #seats: readonly Seat[];
  readonly #restarts = new Set<() => void>();
  #isStopping = false;
  #hasServed = false;
  #exitCode = 0;
  #onGone: () => void = () => {};

  constructor(options: ProcessesOptions) {
    this.#options = options;
    this.#seats = Array.from({ length: options.count }, (_, number) => ({
      number,
      process: undefined,
      servingSinceMs: undefined,
      failures: 0,
    }));
  }

  /** Until the signal, or until they cannot go on. Resolves with the exit code. */
  async run(): Promise<number> {
    const { signal } = this.#options;
    const gone = new Promise<void>((resolve) => {
      this.#onGone = resolve;
    });
    const onStop = (): void => this.#stop();
    signal.addEventListener("abort", onStop, { once: true });
    for (const seat of this.#seats) this.#start(seat);
    if (signal.aborted) this.#stop();
    await gone;
    signal.removeEventListener("abort", onStop);
    return this.#exitCode;
  }

  #start(seat: Seat): void {
    const server = cluster.fork(environmentOf(seat.number));
    seat.process = server;
    server.on("message", (message: unknown) => {
      if (isServing(message)) this.#serves(seat);
    });
    // Its channel may be closed before it has ended, and messages that it never heard fail here.
    server.on("error", () => {});
    server.on("exit", (code: number | null, by: string | null) => this.#ended(seat, code, by));
  }

  #serves(seat: Seat): void {
    const { clock, logger, count } = this.#options;
    seat.servingSinceMs = clock.now();
    const isWhole = this.#seats.every(({ servingSinceMs }) => servingSinceMs !== undefined);
    if (!isWhole) return;
    this.#hasServed = true;
    logger.info({ processes: count }, "all processes of the server serve");
  }

  #ended(seat: Seat, code: number | null, by: string | null): void {
    seat.process = undefined;
    if (this.#isStopping) this.#add(code ?? 1);
    else if (this.#hasServed) this.#restart(seat, code, by);
    else {
      this.#add(code === 0 || code === null ? 1 : code);
      this.#stop();
    }
    this.#tellGone();
  }

  #restart(seat: Seat, code: number | null, by: string | null): void {
    const { clock, logger } = this.#options;
    const { number, servingSinceMs } = seat;
    const wasSteady = servingSinceMs !== undefined && clock.now() - servingSinceMs > STEADY_MS;
    seat.servingSinceMs = undefined;
    seat.failures = wasSteady ? 1 : seat.failures + 1;
    const restMs = exponentialMs(seat.failures, RESTART_MS, RESTART_MS_MAX);
    logger.error({ process: number, code, by, restMs }, "a server process ended: started again");
    const cancel = clock.after(restMs, () => {
      this.#restarts.delete(cancel);
      this.#start(seat);
    });
    this.#restarts.add(cancel);
  }

  /** Each drains by itself; whoever hears of it twice drains once. */
  #stop(): void {
    this.#isStopping = true;
    for (const cancel of this.#restarts) cancel();
    this.#restarts.clear();
    for (const { process: server } of this.#seats) {
      if (server?.isConnected() === true) server.send(stopMessage, () => {});
    }
    this.#tellGone();
  }

  #tellGone(): void {
    if (this.#isStopping && this.#seats.every((seat) => seat.process === undefined)) {
      this.#onGone();
    }
  }

  /** The worst of all: that work was given back says less than that something failed. */
  #add(code: number): void {
    const isWorse = this.#exitCode === 0 || (this.#exitCode === EXIT_GAVE_BACK && code !== 0);
    if (isWorse) this.#exitCode = code;
  }
}
