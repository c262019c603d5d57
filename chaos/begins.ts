import type pg from "pg";
import type { BegunClaim } from "../src/checker/history.ts";
import type { TaskContext } from "../src/index.ts";
import type { RunningContext } from "../src/tasks/running-context.ts";
import type { HistoryWriter } from "./history.ts";

const NOW = `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "atMs"`;

type Claims = Map<string, BegunClaim & { readonly ids: string[] }>;

/**
 * Writes down that handlers began, many in a line, with a time of the database's that is later: it
 * is asked once at a time, for all that began before, and nobody waits for it.
 */
export class Begins {
  readonly #pool: pg.Pool;
  readonly #history: HistoryWriter;
  #waiting = new Map<string, Claims>();
  #asking: Promise<void> | undefined;

  constructor(pool: pg.Pool, history: HistoryWriter) {
    this.#pool = pool;
    this.#history = history;
  }

  add(queue: string, context: TaskContext): void {
    // Past the context's own token: who asks for that gets no packs any more.
    const { taskId, generation, claimId } = (context as RunningContext)["task"].token;
    const claims: Claims = this.#waiting.get(queue) ?? new Map();
    this.#waiting.set(queue, claims);
    const name = `${generation} ${claimId}`;
    const claim = claims.get(name);
    if (claim === undefined) claims.set(name, { generation, claimId, ids: [taskId] });
    else claim.ids.push(taskId);
    this.#asking ??= this.#ask();
  }

  /** When all is written. */
  async end(): Promise<void> {
    while (this.#asking !== undefined) await this.#asking;
  }

  async #ask(): Promise<void> {
    await Promise.resolve(); // Those that begin at once share a line.
    while (this.#waiting.size > 0) {
      const begun = this.#waiting;
      this.#waiting = new Map();
      const asked = await this.#pool.query<{ atMs: number }>(NOW).catch(() => undefined);
      const atMs = asked?.rows[0]?.atMs ?? null;
      for (const [queue, claims] of begun) {
        this.#history.add({ op: "begun", queue, atMs, claims: [...claims.values()] });
      }
    }
    this.#asking = undefined;
  }
}
