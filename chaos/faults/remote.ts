import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../test/support/random.ts";
import type { ServerPlace } from "../remote-side.ts";
import type { Stage } from "../stage.ts";
import { type Fault, LEASE_MS, LOSS_MS, oneOf, RESUME_MS } from "./fault.ts";

/** Servers, and what is between them and their clients. */
export const REMOTE_FAULTS: readonly Fault[] = [
  onServer("server-kill", LOSS_MS, async (place, stage) => {
    const server = await place.up();
    server.kill();
    await server.exited;
    await stage.noteHeld(server);
    await place.up();
    return server.workerId ?? server.name;
  }),
  onServer("server-stop", RESUME_MS, async (place) => {
    const server = await place.up();
    await server.stop();
    await place.up();
    return server.workerId ?? server.name;
  }),
  onServer("server-cut", LOSS_MS, async (place) => {
    for (const door of doorsOf(place)) door.cut();
    await delay(1_000);
    for (const door of doorsOf(place)) door.mend();
    return nameOf(place);
  }),
  onServer("server-half-open", LOSS_MS, async (place, stage) => {
    const server = await place.up();
    for (const door of doorsOf(place)) door.swallow("both");
    await stage.noteHeld(server);
    await delay(LEASE_MS * 1.5);
    for (const door of doorsOf(place)) door.mend();
    return nameOf(place);
  }),
  {
    kind: "kill-remote-worker",
    boundMs: LOSS_MS,
    async strike(stage, random) {
      const worker = oneOf(stage.remote.workers, random);
      worker.kill();
      await worker.exited;
      await stage.noteHeld(worker);
      await stage.remote.refill();
      return [worker.name];
    },
  },
];

const doorsOf = ({ producers, workers }: ServerPlace) => [producers, workers];

const nameOf = ({ process }: ServerPlace): string => process?.name ?? "a server";

/** One of the servers is hit, and mended. */
function onServer(
  kind: string,
  boundMs: number,
  hit: (place: ServerPlace, stage: Stage) => Promise<string>,
): Fault {
  return {
    kind,
    boundMs,
    async strike(stage: Stage, random: Random) {
      return [await hit(oneOf(stage.remote.servers, random), stage)];
    },
  };
}
