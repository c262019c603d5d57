import { setTimeout as delay } from "node:timers/promises";
import { untilAtWork, untilFired, untilLeads, untilRenewed } from "../crew.ts";
import { whyNoFakeClock } from "../processes.ts";
import { WORKER } from "../scene.ts";
import { anyWorker, type Fault, LEASE_MS, LOSS_MS, onWorker, RESUME_MS } from "./fault.ts";

const HEARTBEAT_MS = WORKER.heartbeatTimeout ?? LEASE_MS;

const SHORT_PAUSES = 5;
/** Workers that are there for good have been given something within this. */
const SETTLE_MS = 10_000;
const LEAD_MS = 10_000;
const FIRE_MS = 4_000;

type WrongClock = readonly [first: string, then: string];
/** Off by so many seconds, five times too fast, or set while the worker runs. */
const WRONG_CLOCKS: readonly [WrongClock, ...WrongClock[]] = [
  ["+45", "+45"],
  ["-45", "-45"],
  ["+0 x5", "+0 x5"],
  ["+0", "+45"],
  ["+0", "-45"],
];

/** Processes die, stand still, come and go. */
export const WORKER_FAULTS: readonly Fault[] = [
  onWorker("kill", LOSS_MS, async (worker, stage) => {
    worker.kill();
    await worker.exited;
    await stage.noteHeld(worker);
    await stage.refill();
  }),
  onWorker("pause-past-lease", LOSS_MS, async (worker, stage) => {
    worker.pause();
    await stage.noteHeld(worker);
    await delay(LEASE_MS * 1.5);
    worker.resume();
  }),
  onWorker("pause-below-lease", RESUME_MS, async (worker, stage) => {
    const id = worker.workerId ?? "";
    await stage.withClient((client) => untilRenewed(client, id, LOSS_MS));
    for (let time = 0; time < SHORT_PAUSES; time += 1) {
      worker.pause();
      await delay(Math.min(LEASE_MS, HEARTBEAT_MS) * 0.4);
      worker.resume();
      await delay(200);
    }
  }),
  {
    kind: "pause-leader",
    boundMs: LOSS_MS,
    async strike(stage, random) {
      const leader = (await stage.leader()) ?? anyWorker(stage, random);
      leader.pause();
      await stage.noteHeld(leader);
      await delay(LEASE_MS * 1.5); // Ticks fall due, and workers are assigned, without it.
      leader.resume();
      return [leader.workerId ?? leader.name];
    },
  },
  onWorker("deploy", RESUME_MS, async (worker, stage) => {
    await worker.stop();
    await stage.refill();
  }),
  {
    kind: "scale",
    boundMs: LOSS_MS,
    async strike(stage) {
      await stage.scaleTo(1);
      await stage.scaleTo(8);
      const ids = () => stage.workers.map(({ workerId }) => workerId);
      const met = await stage.withClient((client) => untilAtWork(client, ids, SETTLE_MS));
      await stage.scaleTo(2);
      return [`1, 8, 2 workers; ${met} of 8 were given something`];
    },
  },
  {
    kind: "wrong-clock",
    boundMs: RESUME_MS,
    whyNot: whyNoFakeClock,
    async strike(stage, random) {
      const [first, then] = random.pick(WRONG_CLOCKS);
      const worker = await stage.startWorker({ clock: first, isEager: true });
      const { workerId, name } = worker;
      const hasLed = await stage.withClient(async (client) => {
        const isLeader = await untilLeads(client, workerId ?? "", LEAD_MS);
        await untilFired(client, 2, FIRE_MS);
        worker.setClock(then);
        await untilFired(client, 3, FIRE_MS);
        return isLeader;
      });
      await worker.stop();
      return [workerId ?? name, `${first} ${then}`, hasLed ? "led" : "never led"];
    },
  },
];
