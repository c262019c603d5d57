import type { Cluster, Member } from "./cluster.ts";

/** So many workers at least, and at most: without any nothing happens. */
const MEMBERS_MIN = 2;
const MEMBERS_MAX = 5;

export interface FaultOptions {
  /** Past it others may take what a worker that stands still holds. */
  readonly leaseMs: number;
  /** What happened, for whoever reads why a seed failed. */
  readonly log: string[];
}

/** Makes things go wrong, as the seed of its cluster draws them, until it is told to stop. */
export class Faults {
  readonly #cluster: Cluster;
  readonly #leaseMs: number;
  #isOver = false;
  readonly #log: string[];

  constructor(cluster: Cluster, { leaseMs, log }: FaultOptions) {
    this.#cluster = cluster;
    this.#leaseMs = leaseMs;
    this.#log = log;
  }

  start(meanMs: number): void {
    const { timeline, random } = this.#cluster;
    timeline.after(random.next() * 2 * meanMs, () => {
      if (this.#isOver) return;
      this.#strike();
      this.start(meanMs);
    });
  }

  /** Everything is mended; who stood still goes on. */
  stop(): void {
    this.#isOver = true;
    const { members } = this.#cluster;
    for (const { network, process } of members) {
      network.mend();
      process.goOn(true);
    }
    while (members.size < MEMBERS_MIN) this.#cluster.join();
  }

  #strike(): void {
    const { members, random } = this.#cluster;
    const all = [...members];
    const member = all[random.below(Math.max(1, all.length))];
    const kind = random.pick(KINDS);
    if (member === undefined) {
      this.#cluster.join();
      return;
    }
    const at = Math.round(this.#cluster.timeline.now);
    this.#log.push(`${at} ${kind} ${member.worker.id.slice(0, 8)}`);
    this[kind](member);
  }

  #for(ms: number, end: () => void): void {
    this.#cluster.timeline.after(ms, end);
  }

  kill(member: Member): void {
    const { members, random } = this.#cluster;
    this.#cluster.kill(member, random.chance(0.3));
    if (members.size < MEMBERS_MIN || random.chance(0.5)) this.#cluster.join();
  }

  leave(member: Member): void {
    this.#cluster.stop(member);
    if (this.#cluster.members.size < MEMBERS_MIN || this.#cluster.random.chance(0.5)) {
      this.#cluster.join();
    }
  }

  join(): void {
    if (this.#cluster.members.size < MEMBERS_MAX) this.#cluster.join();
  }

  standStill({ process }: Member): void {
    const { random } = this.#cluster;
    process.standStill();
    this.#for(random.next() * 2.5 * this.#leaseMs, () => process.goOn(random.chance(0.5)));
  }

  halfOpen({ network }: Member): void {
    network.silence("toServer", "toClient");
    this.#for(this.#cluster.random.next() * 2 * this.#leaseMs, () => network.mend());
  }

  loseAnswers({ network }: Member): void {
    network.silence("toClient");
    this.#for(this.#cluster.random.next() * this.#leaseMs, () => network.mend());
  }

  /** Was it done? Whoever asked does not know. */
  loseAnswer({ network }: Member): void {
    network.loseAnswerTo(this.#cluster.random.pick(DOUBTFUL));
  }

  /** In the middle of what it does for all, of which there is something to do. */
  pauseLeader(): void {
    const { members, random } = this.#cluster;
    const leader = [...members].find(({ worker }) => worker.term !== undefined);
    if (leader === undefined) return;
    this.join();
    this.#for(random.next() * 150, () => this.standStill(leader));
  }

  cut({ network }: Member): void {
    network.cut(this.#cluster.random.next());
  }

  slow({ network }: Member): void {
    network.slowMs = this.#cluster.random.next() * 600;
    this.#for(this.#cluster.random.next() * this.#leaseMs, () => network.mend());
  }

  crashServer(): void {
    const { random, scene } = this.#cluster;
    scene.server.crash(random.next() * 3_000, random);
  }

  /** While a claim that somebody was told of is not on the disk yet. */
  crashAfterClaim(): void {
    const { random, scene } = this.#cluster;
    scene.server.onNextAsync(() => this.#for(random.next() * 8, () => this.crashServer()));
  }
}

const DOUBTFUL = [
  "tasks_claim_keyed",
  "tasks_claim_alone",
  "tasks_claim_heads",
  "tasks_complete",
  "tasks_put_back",
  "tasks_renew",
  "leader_begin_term",
  "bucket_owner_write",
  "COMMIT",
] as const;

const KINDS = [
  "kill",
  "leave",
  "join",
  "standStill",
  "standStill",
  "halfOpen",
  "loseAnswers",
  "loseAnswer",
  "loseAnswer",
  "cut",
  "slow",
  "crashServer",
  "crashAfterClaim",
  "pauseLeader",
] as const;
