import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Sample } from "../src/checker/history.ts";
import type { HistoryWriter } from "./history.ts";
import { SCENE } from "./scene.ts";

const EVERY_MS = 50;
const LIMITED = Object.keys(SCENE.limits);
const LOOK = `
  SELECT COALESCE(pg_sequence_last_value('chaos.effects_seq_seq'), 0)::int AS finished,
         COALESCE(pg_sequence_last_value('chaos.handled_seq_seq'), 0)::int AS handled,
         COALESCE(pg_sequence_last_value('chaos.remote_ends'), 0)::int AS remote,
         (SELECT COALESCE(json_object_agg(queue, running), '{}')
            FROM (SELECT queue, count(*) AS running FROM tidemill.tasks
                   WHERE lane IN (SELECT lane FROM tidemill.task_lanes WHERE queue = ANY ($1))
                     AND state = 'running'
                   GROUP BY queue) AS one) AS limited`;

/** Looks at the database all the time, past all proxies, and writes down what it saw. */
export class Watcher implements AsyncDisposable {
  readonly #url: string;
  readonly #history: HistoryWriter;
  readonly #over = new AbortController();
  readonly #watching: Promise<void>;
  #latest: Sample | undefined;

  constructor(url: string, history: HistoryWriter) {
    this.#url = url;
    this.#history = history;
    this.#watching = this.#watch();
  }

  get latest(): Sample | undefined {
    return this.#latest;
  }

  /** Milliseconds until tasks ended, also remotely, and events were handled that had not before. */
  async untilProgress(timeoutMs: number): Promise<number> {
    const beganMs = performance.now();
    const before = this.#latest;
    while (performance.now() - beganMs < timeoutMs) {
      const now = this.#latest;
      const isTasks = (now?.finished ?? 0) > (before?.finished ?? 0);
      const isEvents = (now?.handled ?? 0) > (before?.handled ?? 0);
      const isRemote = (now?.remote ?? 0) > (before?.remote ?? 0);
      if (isTasks && isEvents && isRemote) return performance.now() - beganMs;
      await delay(5);
    }
    return Infinity;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const client = new pg.Client({ connectionString: this.#url });
      client.on("error", () => {});
      try {
        await client.connect();
        while (!this.#over.signal.aborted) {
          const { rows } = await client.query<Omit<Sample, "atMs">>(LOOK, [LIMITED]);
          const [row] = rows;
          if (row === undefined) continue;
          this.#latest = { atMs: Date.now(), ...row };
          this.#history.add({ op: "sample", sample: this.#latest });
          await delay(EVERY_MS);
        }
      } catch {
        await delay(EVERY_MS); // The server is down: that is what this is for.
      } finally {
        await client.end().catch(() => {});
      }
    }
  }
}
