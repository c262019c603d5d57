import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { FeedHub } from "./hub.ts";

const EVERY_MS = 250;
/** While nobody wants one. */
const IDLE_MS = 1_000;

/** Tells those who read summaries what became of tasks, four times a second. */
export class Summaries implements Service {
  readonly name = "feed summaries";
  readonly #hub: FeedHub;
  readonly #clock: Clock;

  constructor(hub: FeedHub, clock: Clock) {
    this.#hub = hub;
    this.#clock = clock;
  }

  async run(signal: AbortSignal): Promise<void> {
    const options = { clock: this.#clock, bell: new Bell(), onFailure: () => EVERY_MS };
    await runLoop(() => this.#tell(), options, signal);
  }

  #tell(): Promise<TurnResult> {
    for (const client of this.#hub.clients) client.sumUp();
    return Promise.resolve({ restMs: this.#hub.hasSummaries ? EVERY_MS : IDLE_MS });
  }
}
