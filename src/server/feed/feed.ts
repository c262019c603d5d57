import { Bell } from "../../base/bell.ts";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { runLoop, type TurnResult } from "../../base/loop.ts";
import type { Service } from "../../base/supervisor.ts";
import type { Database } from "../../db/database.ts";
import { HEARTBEAT } from "./event.ts";
import { FeedHub, type HubOptions } from "./hub.ts";
import { FeedMetrics } from "./metrics.ts";
import { FeedReader } from "./reader.ts";
import { readFeedHolders } from "./sql/holders.ts";
import { StatusTeller } from "./status-teller.ts";
import { Summaries } from "./summaries.ts";

export interface FeedSettings extends Pick<HubOptions, "clientCharsMax" | "goodbyeMs"> {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Defaults to 15,000. */
  readonly heartbeatMs?: number;
  /** The state of the cluster, for those who read summaries. Defaults to none. */
  readonly readStatus?: () => Promise<object>;
}

const HEARTBEAT_MS = 15_000;
/** What holds the feed for less is a transaction that is about to end. */
const HELD_MS = 1_000;
/** A client that has taken nothing for so many heartbeats is gone. */
const DEAF_BEATS = 20;

/** The feed of one server: its clients, the reader that serves them, and their heartbeats. */
export class Feed {
  readonly metrics = new FeedMetrics();
  readonly hub: FeedHub;
  readonly services: readonly Service[];

  constructor(db: Database, options: FeedSettings) {
    const { clock, logger, heartbeatMs = HEARTBEAT_MS, readStatus } = options;
    const { clientCharsMax, goodbyeMs } = options;
    const { metrics } = this;
    const onClient = (): void => {
      reader.bell.ring();
      teller?.bell.ring();
    };
    const teller: StatusTeller | undefined =
      readStatus === undefined
        ? undefined
        : new StatusTeller(() => this.hub, {
            clock,
            logger,
            readStatus: async () => ({ ...(await readStatus()), ...(await readHeld()) }),
          });
    const readHeld = async (): Promise<object> => {
      const { held } = reader;
      if (held === undefined || held.ms < HELD_MS) return {};
      const holders = await readFeedHolders(db, held.writers);
      return { feedHeld: { seconds: held.ms / 1000, holders } };
    };
    this.hub = new FeedHub({
      db,
      metrics,
      onClient,
      onClusterChange: () => teller?.bell.ring(),
      clock,
      ...(clientCharsMax === undefined ? {} : { clientCharsMax }),
      ...(goodbyeMs === undefined ? {} : { goodbyeMs }),
    });
    const channel = db.names.splices["tasks_channel"] ?? "";
    const reader = new FeedReader(db, this.hub, { channel, metrics, clock, logger });
    this.services = [
      reader,
      new Heartbeats(this.hub, clock, heartbeatMs),
      new Summaries(this.hub, clock),
      ...(teller === undefined ? [] : [teller]),
    ];
  }

  /** Ends all streams, and takes no more. */
  drain(): void {
    this.hub.close();
  }
}

/** Says to clients that they are connected, and lets go of those that have stopped reading. */
class Heartbeats implements Service {
  readonly name = "feed heartbeats";
  readonly #hub: FeedHub;
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #deaf = new WeakMap<object, number>();

  constructor(hub: FeedHub, clock: Clock, everyMs: number) {
    this.#hub = hub;
    this.#clock = clock;
    this.#everyMs = everyMs;
  }

  async run(signal: AbortSignal): Promise<void> {
    const options = { clock: this.#clock, bell: new Bell(), onFailure: () => this.#everyMs };
    await runLoop(() => this.#beat(), options, signal);
  }

  #beat(): Promise<TurnResult> {
    for (const client of this.#hub.clients) {
      const deaf = client.askAwake() ? 0 : (this.#deaf.get(client) ?? 0) + 1;
      this.#deaf.set(client, deaf);
      if (deaf >= DEAF_BEATS) client.cut();
      else client.beat(HEARTBEAT);
    }
    return Promise.resolve({ restMs: this.#everyMs });
  }
}
