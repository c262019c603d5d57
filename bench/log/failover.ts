import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Tidemill } from "../../src/index.ts";
import type { Figure } from "../support/figure.ts";
import type { BenchServer } from "../support/server.ts";

const PROGRAM = fileURLToPath(new URL("./failover-worker.ts", import.meta.url));
const CONSUMERS = ["failover_a", "failover_b"];
const APPEND_EVERY_MS = 20;

interface Handled {
  readonly worker: string;
  readonly consumer: string;
  readonly at: number;
}

/** How long a consumer stands still when its worker is killed, and when it stops. */
export async function failoverFigures(server: BenchServer): Promise<Figure[]> {
  const settings = { ...server.settings, heartbeatInterval: 3_000, heartbeatTimeout: 10_000 };
  return [
    {
      figure: "log.failover_kill_ms",
      value: await failover(server, "SIGKILL"),
      unit: "ms from kill -9 to the next event handled elsewhere",
      settings,
    },
    {
      figure: "log.failover_stop_ms",
      value: await failover(server, "SIGTERM"),
      unit: "ms from the last event here to the next elsewhere",
      settings,
    },
  ];
}

async function failover(server: BenchServer, signal: "SIGKILL" | "SIGTERM"): Promise<number> {
  const url = await server.database();
  const handled: Handled[] = [];
  const members = [await startMember(url, handled), await startMember(url, handled)];
  const mill = await Tidemill.connect(url, { notifyChannel: "worker_events" });
  const stop = new AbortController();
  const appending = appendUntil(mill, stop.signal);
  // Each has one of the two consumers before one of them goes.
  await until(() => members.every(({ id }) => handled.some((one) => one.worker === id)));
  const [victim, survivor] = members as [Member, Member];
  const moved = handled.findLast((one) => one.worker === victim.id)?.consumer;
  const goneAt = performance.timeOrigin + performance.now();
  victim.process.kill(signal);
  const isTakenOver = (one: Handled): boolean =>
    one.worker === survivor.id && one.consumer === moved && one.at > goneAt;
  await until(() => handled.some(isTakenOver));
  const resumedAt = handled.find(isTakenOver)?.at ?? Number.NaN;
  const lastHere = handled.findLast((one) => one.worker === victim.id)?.at ?? goneAt;
  stop.abort();
  await appending;
  await mill.close();
  survivor.process.kill("SIGTERM");
  await once(survivor.process, "exit");
  return resumedAt - (signal === "SIGKILL" ? goneAt : lastHere);
}

interface Member {
  readonly id: string;
  readonly process: ChildProcess;
}

async function startMember(url: string, handled: Handled[]): Promise<Member> {
  const child = spawn(process.execPath, ["--import", "tsx", PROGRAM, url, CONSUMERS.join(",")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  return await new Promise((resolve, reject) => {
    let id = "";
    child.once("exit", (code) => reject(new Error(`the worker ended with ${code}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const said = JSON.parse(line) as { ready?: string; handled?: string; at?: number };
      if (said.ready !== undefined) {
        id = said.ready;
        resolve({ id, process: child });
      } else if (said.handled !== undefined && said.at !== undefined) {
        handled.push({ worker: id, consumer: said.handled, at: said.at });
      }
    });
  });
}

async function appendUntil(mill: Tidemill, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await mill.append({ type: "Order", id: "1" }, [{ type: "OrderPaid" }]);
    await new Promise((resolve) => setTimeout(resolve, APPEND_EVERY_MS));
  }
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 5));
}
