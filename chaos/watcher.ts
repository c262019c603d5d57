import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import type { Sample } from "../src/checker/history.ts";
import type { HistoryWriter } from "./history.ts";
import { SCENE } from "./scene.ts";

const EVERY_MS = 50;
/** While somebody waits. */
const LOOK_MS = 5;
const LIMITED = Object.keys(SCENE.limits);
// Of committed rows. What the sequences say rises with a crash: the log has them 32 ahead.
const DONE = `
  SELECT COALESCE((SELECT max(seq) FROM chaos.effects), 0)::int AS finished,
         COALESCE((SELECT max(seq) FROM chaos.handled), 0)::int AS handled,
         COALESCE((SELECT max(seq) FROM chaos.remote_ends), 0)::int AS remote`;
const LOOK = `${DONE},
         (SELECT COALESCE(json_object_agg(queue, running), '{}')
            FROM (SELECT queue, count(*) AS running FROM tidemill.tasks
                   WHERE lane IN (SELECT lane FROM tidemill.task_lanes WHERE queue = ANY ($1))
                     AND state = 'running'
                   GROUP BY queue) AS one) AS limited`;

type Done = Pick<Sample, "finished" | "handled" | "remote">;

const isBeyond = (now: Done, before: Done): boolean =>
  now.finished > before.finished && now.handled > before.handled && now.remote > before.remote;

/** Looks at the database all the time, past all proxies, and writes down what it saw. */
export class Watcher implements AsyncDisposable {
  readonly #url: string;
  readonly #history: HistoryWriter;
  readonly #over = new AbortController();
  readonly #watching: Promise<void>;
  constructor(url: string, history: HistoryWriter) {
    this.#url = url;
    this.#history = history;
    this.#watching = this.#watch();
  }

  /**
   * Milliseconds from a moment of `performance.now()` until more tasks had ended, also remotely,
   * and more events been handled than when the database answered first after it.
   */
  async untilProgress(sinceMs: number, timeoutMs: number): Promise<number> {
    let before: Done | undefined;
    while (performance.now() - sinceMs < timeoutMs) {
      const client = new pg.Client({ connectionString: this.#url });
      client.on("error", () => {});
      try {
        await client.connect();
        while (performance.now() - sinceMs < timeoutMs) {
          const { rows } = await client.query<Done>(DONE);
          const [now] = rows;
          before ??= now;
          if (now !== undefined && before !== undefined && isBeyond(now, before)) {
            return performance.now() - sinceMs;
          }
          await delay(LOOK_MS);
        }
      } catch {
        await delay(LOOK_MS); // It does not answer, or answers nobody any more.
      } finally {
        await client.end().catch(() => {});
      }
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
          this.#history.add({ op: "sample", sample: { atMs: Date.now(), ...row } });
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
