import type { Random } from "../support/random.ts";
import type { Reply } from "./session.ts";
import type { Timeline } from "./timeline.ts";

type Direction = "toServer" | "toClient";

const LATENCY_MS_MAX = 2;
const SPIKE_MS_MAX = 80;

/**
 * The network between one process and the server. What is sent on one connection arrives in order,
 * each after its own time; what was sent while a direction is silent arrives when it is mended, as
 * TCP sends it again.
 */
export class SimNetwork {
  readonly #timeline: Timeline;
  readonly #random: Random;
  readonly #links = new Set<Link>();
  readonly silent: Record<Direction, boolean> = { toServer: false, toClient: false };
  /** Added to whatever is sent. */
  slowMs = 0;
  #lostAnswer: string | undefined;

  constructor(timeline: Timeline, random: Random) {
    this.#timeline = timeline;
    this.#random = random;
  }

  latencyMs(): number {
    const spike = this.#random.chance(0.01) ? this.#random.next() * SPIKE_MS_MAX : 0;
    const slow = this.slowMs * this.#random.next();
    return 0.1 + this.#random.next() * LATENCY_MS_MAX + spike + slow;
  }

  open(ends: LinkEnds): Link {
    const link = new Link(this, this.#timeline, ends);
    this.#links.add(link);
    return link;
  }

  forget(link: Link): void {
    this.#links.delete(link);
  }

  silence(...directions: Direction[]): void {
    for (const direction of directions) this.silent[direction] = true;
  }

  mend(): void {
    this.silent.toServer = false;
    this.silent.toClient = false;
    this.slowMs = 0;
    for (const link of this.#links) link.mended();
  }

  /** Resets connections, as drawn: both ends are told, unless they cannot be reached. */
  cut(share: number): void {
    for (const link of this.#links) if (this.#random.chance(share)) link.reset();
  }

  /** The next answer to this statement is lost, and its connection with it. */
  loseAnswerTo(name: string): void {
    this.#lostAnswer = name;
  }

  /** Not that of a claim that took nothing: nobody would miss it. */
  isLost({ name, rows }: Pick<Reply, "name" | "rows">): boolean {
    const isEmpty = rows.some((row) => "picked" in row && row.picked === null);
    if (this.#lostAnswer !== name || isEmpty) return false;
    this.#lostAnswer = undefined;
    return true;
  }
}

export interface LinkEnds {
  /** The connection has ended, at the client's end or the server's. */
  readonly onClientEnd: () => void;
  readonly onServerEnd: (isReset: boolean) => void;
}

/** One connection. */
export class Link {
  readonly #network: SimNetwork;
  readonly #timeline: Timeline;
  readonly #ends: LinkEnds;
  readonly #lastAt: Record<Direction, number> = { toServer: 0, toClient: 0 };
  readonly #held: Record<Direction, (() => void)[]> = { toServer: [], toClient: [] };
  readonly #isOpen: Record<Direction, boolean> = { toServer: true, toClient: true };

  constructor(network: SimNetwork, timeline: Timeline, ends: LinkEnds) {
    this.#network = network;
    this.#timeline = timeline;
    this.#ends = ends;
  }

  /** Calls `arrive` at the other end, after everything that was sent before. */
  send(direction: Direction, arrive: () => void): void {
    const at = Math.max(this.#lastAt[direction], this.#timeline.now + this.#network.latencyMs());
    this.#lastAt[direction] = at;
    this.#timeline.after(at - this.#timeline.now, () => this.#arrive(direction, arrive));
  }

  #arrive(direction: Direction, arrive: () => void): void {
    if (!this.#isOpen[direction]) return;
    const held = this.#held[direction];
    if (this.#network.silent[direction] || held.length > 0) held.push(arrive);
    else arrive();
  }

  mended(): void {
    for (const direction of ["toServer", "toClient"] as const) {
      const held = this.#held[direction].splice(0);
      for (const arrive of held) this.send(direction, arrive);
    }
  }

  /** The client closes: the server hears of it after all that was sent. */
  closeFromClient(): void {
    this.#isOpen.toClient = false;
    this.send("toServer", () => {
      this.#isOpen.toServer = false;
      this.#ends.onServerEnd(false);
      this.#network.forget(this);
    });
  }

  /** The server closes: the client hears of it after all that was sent. */
  closeFromServer(): void {
    this.#isOpen.toServer = false;
    this.send("toClient", () => {
      this.#isOpen.toClient = false;
      this.#ends.onClientEnd();
      this.#network.forget(this);
    });
  }

  /** What is on its way is lost. */
  reset(): void {
    if (this.#isOpen.toClient) {
      this.#isOpen.toClient = false;
      this.#ends.onClientEnd();
    }
    if (this.#isOpen.toServer) {
      this.#isOpen.toServer = false;
      this.#timeline.after(this.#network.latencyMs(), () => this.#ends.onServerEnd(true));
    }
    this.#network.forget(this);
  }
}
