import type { Logger } from "../../base/log.ts";
import type { Timers } from "../../base/timers.ts";
import type { Refused } from "../../wire/generated/tidemill/v1/stream.ts";
import { FromWorker } from "../../wire/generated/tidemill/v1/worker.ts";
import type { Link } from "../link.ts";
import { creditToGive } from "./credit.ts";
import type { QueueGroup } from "./slots.ts";

export interface CreditGiverOptions {
  readonly batchSize: number;
  readonly logger: Logger;
  readonly timers: Timers;
  readonly nextRequest: () => bigint;
  /** Credit may be given again. */
  readonly onTime: () => void;
}

interface Gift {
  readonly group: QueueGroup;
  readonly count: number;
  readonly link: Link;
}

/** Gifts that could still be refused; what is older was not. */
const GIFTS_MAX = 256;
const REFUSED_MS = 1_000;
const UNANSWERED_MIN = 256;

/** Tells a server how many tasks may come, of which queues. */
export class CreditGiver {
  readonly #groups: readonly QueueGroup[];
  readonly #options: CreditGiverOptions;
  readonly #gifts = new Map<bigint, Gift>();
  readonly #unansweredMax: number;
  readonly #step: number;
  #isRefused = false;

  constructor(groups: readonly QueueGroup[], options: CreditGiverOptions) {
    this.#groups = groups;
    this.#options = options;
    const capacity = groups.reduce((sum, group) => sum + group.capacity, 0);
    this.#unansweredMax = Math.max(UNANSWERED_MIN, 2 * capacity);
    this.#step = Math.max(1, Math.floor(options.batchSize / 2));
  }

  /** A link that is known, or gone: whatever was given is void. */
  reset(): void {
    this.#gifts.clear();
    for (const group of this.#groups) group.given = 0;
  }

  /** @param unanswered acts that the server has not acknowledged */
  give(link: Link, unanswered: number): void {
    if (this.#isRefused) return;
    for (const group of this.#groups) {
      const { capacity, held, given } = group;
      const facts = { capacity, held, given, unanswered };
      const count = creditToGive({
        ...facts,
        step: this.#step,
        unansweredMax: this.#unansweredMax,
      });
      if (count > 0) this.#send(link, group, count);
    }
  }

  #send(link: Link, group: QueueGroup, count: number): void {
    const requestId = this.#options.nextRequest();
    group.given += count;
    this.#gifts.set(requestId, { group, count, link });
    if (this.#gifts.size > GIFTS_MAX) {
      const [oldest] = this.#gifts.keys();
      if (oldest !== undefined) this.#gifts.delete(oldest);
    }
    // Of one group the server knows the queues.
    const queues = this.#groups.length === 1 ? [] : [...group.queues];
    const value = { requestId, count, queues };
    link.send(FromWorker.encode({ message: { $case: "ready", value } }).finish());
  }

  /** Nothing comes of this gift; after a pause there is another. Whether it was one of ours. */
  onRefused({ requestId, failure }: Refused): boolean {
    const gift = this.#gifts.get(requestId);
    if (gift === undefined) return false;
    this.#gifts.delete(requestId);
    gift.group.given = Math.max(0, gift.group.given - gift.count);
    const { logger, timers, onTime } = this.#options;
    const fields = { server: gift.link.address, code: failure?.code, error: failure?.message };
    logger.warn(fields, "the server refused credit; it is offered again");
    if (this.#isRefused) return true;
    this.#isRefused = true;
    timers.after(Math.max(REFUSED_MS, failure?.retryAfterMs ?? 0), () => {
      this.#isRefused = false;
      onTime();
    });
    return true;
  }
}
