import type { WorkerOptions } from "../../src/worker/options.ts";
import { Random } from "../support/random.ts";
import { type SimServer, startServer } from "./server.ts";
import { SimNetwork } from "./sim-network.ts";
import { SimProcess } from "./sim-process.ts";
import { SimWorker } from "./sim-worker.ts";
import { Timeline } from "./timeline.ts";

/** Clocks drift apart by so much, which trust must allow for. */
const DRIFT_MAX = 0.03;
const RESTART_MS = 300;

export interface Member {
  readonly worker: SimWorker;
  readonly process: SimProcess;
  readonly network: SimNetwork;
}

/** Workers on one simulated server, as a seed draws them. */
export class Cluster {
  readonly timeline = new Timeline();
  readonly random: Random;
  readonly scene: SimServer;
  readonly members = new Set<Member>();
  readonly #options: (member: Pick<Member, "process">, id: string) => WorkerOptions;
  #isOver = false;

  constructor(
    seed: number,
    options: (member: Pick<Member, "process">, id: string) => WorkerOptions,
  ) {
    this.random = new Random(seed);
    this.#options = options;
    this.scene = startServer(this.timeline, { random: this.random });
  }

  /** A process that starts; when it ends by itself, another one takes its place. */
  join(): Member {
    const { random, timeline } = this;
    const clock = {
      startMs: random.below(1_000_000),
      rate: 1 + (random.next() - 0.5) * 2 * DRIFT_MAX,
    };
    const process = new SimProcess(timeline, random, clock);
    const network = new SimNetwork(timeline, random);
    const id = drawUuid(random);
    const options = this.#options({ process }, id);
    const place = { process, network, server: this.scene.server };
    const worker = new SimWorker(id, place, random, options);
    const member = { worker, process, network };
    this.members.add(member);
    void worker.run().then(() => {
      if (!this.members.delete(member)) return;
      process.die();
      network.cut(1);
      if (!this.#isOver) this.timeline.after(RESTART_MS, () => this.#isOver || this.join());
    });
    timeline.stir();
    return member;
  }

  /** Stops dead. Its host may be gone with it, and then nobody tells the server. */
  kill(member: Member, isHostLost: boolean): void {
    this.members.delete(member);
    member.process.die();
    if (!isHostLost) {
      member.network.cut(1);
      return;
    }
    member.network.silence("toServer", "toClient");
    this.timeline.after(HOST_LOST_MS, () => member.network.cut(1)); // By the server's keepalive.
  }

  /** Leaves in peace. */
  stop(member: Member): void {
    this.members.delete(member);
    member.worker.stop();
  }

  end(): void {
    this.#isOver = true;
    for (const { process } of this.members) process.die();
  }
}

const HOST_LOST_MS = 20_000;

function drawUuid(random: Random): string {
  const digits = Array.from({ length: 32 }, () => random.below(16).toString(16)).join("");
  const parts = [
    [0, 8],
    [8, 12],
    [12, 16],
    [16, 20],
    [20, 32],
  ] as const;
  return parts.map(([from, to]) => digits.slice(from, to)).join("-");
}
