import { type FeedTask, RestClient } from "../../../src/client/index.ts";
import { onCleanup } from "../../support/database.ts";

/** A change of a task, as the feed tells it. */
export interface Change {
  readonly state: FeedTask["state"];
  readonly attempt: number;
}

const ENDS: readonly string[] = ["completed", "failed", "dead", "cancelled"];

/** A client of the feed that keeps what it was told of each task, and comes back by itself. */
export class Watcher {
  readonly tasks = new Map<string, Change[]>();
  changes = 0;
  ended = 0;
  /** Streams that were opened: one more for each time that its server was gone. */
  streams = 0;
  /** Whatever it was told that is no change, and that something is missing. */
  readonly complaints: string[] = [];
  readonly #abort = new AbortController();
  readonly #finished: Promise<void>;
  #ready: () => void = () => {};

  private constructor(url: string, token: string) {
    const rest = new RestClient({ url, token });
    this.#finished = this.#read(rest);
  }

  /** Resolves when nothing can be missed any more. */
  static async open(url: string, token: string): Promise<Watcher> {
    const watcher = new Watcher(url, token);
    onCleanup(() => watcher.close());
    const ready = new Promise<void>((resolve) => {
      watcher.#ready = resolve;
    });
    await Promise.race([ready, watcher.#finished]);
    return watcher;
  }

  async close(): Promise<void> {
    this.#abort.abort();
    await this.#finished;
  }

  async #read(rest: RestClient): Promise<void> {
    for await (const event of rest.feed({ signal: this.#abort.signal })) {
      if (event.event === "task") this.#note(event.data);
      else if (event.event === "ready") {
        this.streams += 1;
        this.#ready();
      } else this.complaints.push(`${event.event} ${JSON.stringify(event.data)}`);
    }
  }

  #note({ id, state, attempt }: FeedTask): void {
    const known = this.tasks.get(id);
    if (known === undefined) this.tasks.set(id, [{ state, attempt }]);
    else known.push({ state, attempt });
    this.changes += 1;
    if (ENDS.includes(state)) this.ended += 1;
  }
}

/**
 * Why a task cannot have come from one change to the next, or undefined. If one between them was
 * not told, this cannot be either.
 */
export function impossible(from: Change | undefined, to: Change): string | undefined {
  const why = `${from?.state ?? "nothing"} ${from?.attempt ?? ""} → ${to.state} ${to.attempt}`;
  const same = to.attempt === from?.attempt;
  const isPossible = ((): boolean => {
    if (from === undefined) return to.state === "pending" && to.attempt === 0;
    if (from.state === "scheduled") return to.state === "pending" && same;
    if (from.state === "pending") return to.state === "running" && to.attempt === from.attempt + 1;
    if (from.state !== "running") return false; // It has ended.
    const isBack = to.state === "pending" || to.state === "scheduled";
    // Given back uncounted, or counted.
    return isBack ? same || to.attempt === from.attempt - 1 : ENDS.includes(to.state) && same;
  })();
  return isPossible ? undefined : why;
}
