import type { Logger } from "../../base/log.ts";
import { type ActAck, type ActsAck, FromWorker } from "../../wire/generated/tidemill/v1/worker.ts";
import type { Link } from "../link.ts";
import { type WireAct, weightOfAct } from "./end-act.ts";
import type { RemoteTask } from "./remote-task.ts";

/** Something that was done with a task, until the server has answered for it. */
export interface PendingAct {
  readonly task: RemoteTask;
  readonly act: WireAct;
  /** Called once. */
  onAck(ack: ActAck): void;
}

interface SentActs {
  readonly acts: readonly PendingAct[];
  readonly link: Link;
}

export interface ActLimits {
  readonly actsMax: number;
  readonly bytesMax: number;
}

/**
 * Acts on their way to a server: gathered, sent, and answered. Those that were not answered when
 * their link was lost go first on the next one: each carries its whole token, and the same act of
 * the same token is acknowledged again.
 */
export class ActLine {
  readonly #logger: Logger;
  readonly #sent = new Map<bigint, SentActs>();
  #waiting: PendingAct[] = [];
  #unanswered = 0;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Waiting, or sent and not answered. */
  get open(): number {
    return this.#waiting.length + this.#unanswered;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  add(act: PendingAct): void {
    this.#waiting.push(act);
  }

  /** Sends what waits, in messages that the server takes. */
  send(link: Link, limits: ActLimits, nextRequest: () => bigint): void {
    let from = 0;
    while (from < this.#waiting.length && link.isOpen && !link.isFull) {
      const acts = this.#next(from, limits);
      from += acts.length;
      const requestId = nextRequest();
      const value = {
        requestId,
        acts: acts.map(({ task, act }) => ({ token: task.token, act })),
      };
      this.#sent.set(requestId, { acts, link });
      this.#unanswered += acts.length;
      link.send(FromWorker.encode({ message: { $case: "acts", value } }).finish());
    }
    this.#waiting = from === this.#waiting.length ? [] : this.#waiting.slice(from);
  }

  #next(from: number, { actsMax, bytesMax }: ActLimits): PendingAct[] {
    let to = from;
    let bytes = 0;
    while (to < this.#waiting.length && to - from < actsMax) {
      const act = this.#waiting[to];
      if (act === undefined) break;
      bytes += weightOfAct(act.act);
      if (to > from && bytes > bytesMax) break;
      to += 1;
    }
    return this.#waiting.slice(from, to);
  }

  onAck({ requestId, acks }: ActsAck): void {
    const sent = this.#take(requestId);
    if (sent === undefined) return;
    for (const [place, act] of sent.acts.entries()) act.onAck(acks[place] ?? NO_ACK);
  }

  /** Nothing of the message was done. Whether it was one of ours. */
  onRefused(requestId: bigint, ack: ActAck): boolean {
    const sent = this.#take(requestId);
    if (sent === undefined) return false;
    for (const act of sent.acts) act.onAck(ack);
    return true;
  }

  /** Nothing will be sent any more: all of them are answered with this. */
  clear(ack: ActAck): void {
    const left = [...this.#sent.values()].flatMap(({ acts }) => acts).concat(this.#waiting);
    this.#sent.clear();
    this.#waiting = [];
    this.#unanswered = 0;
    for (const act of left) act.onAck(ack);
  }

  #take(requestId: bigint): SentActs | undefined {
    const sent = this.#sent.get(requestId);
    if (sent === undefined) return undefined;
    this.#sent.delete(requestId);
    this.#unanswered -= sent.acts.length;
    return sent;
  }

  onLost(link: Link): void {
    const again: PendingAct[] = [];
    for (const [requestId, sent] of this.#sent) {
      if (sent.link !== link) continue;
      this.#take(requestId);
      again.push(...sent.acts);
    }
    if (again.length === 0) return;
    this.#logger.info({ acts: again.length }, "acts without an answer are sent again");
    this.#waiting = [...again, ...this.#waiting];
  }
}

const NO_ACK: ActAck = {
  failure: {
    code: "TM_INTERNAL",
    message: "the server answered without this act",
    retryable: false,
    retryAfterMs: 0,
  },
  state: "",
  lease: undefined,
  delaySeconds: 0,
};
