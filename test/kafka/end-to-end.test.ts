import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { httpQueue } from "../../src/index.ts";
import type { ServerOptions } from "../../src/server/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import type { JobProcessSpec } from "../support/job-process.ts";
import type { JobTargetSpec } from "../support/job-target.ts";
import { scratch } from "../support/scratch.ts";
import { startServerProcess } from "../support/server-processes.ts";
import { auditFeed, auditJobs, type Tally } from "./end-to-end/audit.ts";
import { readBooks, readFeed } from "./end-to-end/books.ts";
import { messageOf, PRIORITIES } from "./end-to-end/jobs.ts";
import { type Program, startJobs, startTarget } from "./end-to-end/processes.ts";
import { tableOf } from "./end-to-end/table.ts";
import { Watcher } from "./end-to-end/watcher.ts";
import { type Scene, scene, useBroker, used } from "./scene.ts";

/** `npm run test:endtoend` takes 30,000. */
const JOBS = Number(process.env["TIDEMILL_TEST_JOBS"] ?? 1_500);
const RUN_MS_MAX = 60_000 + JOBS * 20;
const TOKEN = "token-of-a-watcher-0123456789";
const BATCH = 2_000;
const FAULTS_SHOWN = 10;

useBroker();

const SERVER: ServerOptions = {
  host: "127.0.0.1",
  producer: false,
  worker: false,
  http: { port: 0 },
  metrics: false,
  deliverWebhooks: false,
  drainSeconds: 1,
  auth: { staticTokens: [{ token: TOKEN, tenant: "default", scopes: ["read"] }] },
};

/** All of them, before anybody reads: every third is high, normal or low. */
async function fillTopics({ client, prefix }: Scene, port: number): Promise<void> {
  for (let from = 0; from < JOBS; from += BATCH) {
    const length = Math.min(BATCH, JOBS - from);
    await client.publish(
      Array.from({ length }, (_, place) => {
        const n = from + place;
        return {
          topic: `${prefix}.jobs.${PRIORITIES[n % PRIORITIES.length]}`,
          key: Buffer.from(String(n)),
          value: Buffer.from(JSON.stringify(messageOf(n, port))),
          headers: [],
        };
      }),
    );
  }
}

/** The parts of a run: what is killed in it, and who watches. */
interface Parts {
  readonly watcher: Watcher;
  readonly jobs: JobProcessSpec;
  readonly target: JobTargetSpec;
  targets: Program;
  readonly workers: Program[];
  readonly restartServer: () => Promise<void>;
}

async function startParts(here: Scene): Promise<Parts> {
  const folder = mkdtempSync(join(scratch(), "tidemill-jobs-"));
  onCleanup(async () => rmSync(folder, { recursive: true }));
  const record = join(folder, "record.jsonl");
  writeFileSync(record, "");
  const busyPerSecond = Math.max(8, JOBS / 300);
  const targets = await startTarget({ record, port: 0, busyPerSecond });
  const port = Number(targets.said["port"]);
  await fillTopics(here, port);
  const calls = httpQueue("jobs", {
    timeoutSeconds: 1.5,
    backoff: { kind: "full-jitter", baseSeconds: 0.1, maxSeconds: 0.5 },
  });
  await here.mill.queues.define(calls);
  let server = await startServerProcess(here.database.url, SERVER);
  const http = { port: Number(new URL(server.http).port) };
  const watcher = await Watcher.open(server.http, TOKEN);
  const jobs: JobProcessSpec = {
    url: here.database.url,
    broker: here.broker.address,
    ingest: { ...here.options, batchMessages: 200 },
    port,
    leaseSeconds: 3,
    drainSeconds: 30,
  };
  const workers = await Promise.all(PRIORITIES.map(() => startJobs(jobs)));
  const restartServer = async (): Promise<void> => {
    await server.kill();
    server = await startServerProcess(here.database.url, { ...SERVER, http });
  };
  return {
    watcher,
    jobs,
    target: { record, port, busyPerSecond },
    targets,
    workers,
    restartServer,
  };
}

/** Waits until so much of all jobs has ended. */
async function until(watcher: Watcher, share: number, timeoutMs = RUN_MS_MAX): Promise<void> {
  const count = Math.ceil(JOBS * share);
  await eventually(() => expect(watcher.ended).toBeGreaterThanOrEqual(count), { timeoutMs });
}

/** Waits until it has calls in its hands: else nothing would be lost with it. */
async function isCalling({ database }: Scene, program: Program | undefined): Promise<void> {
  const running = `SELECT count(*)::int AS count FROM tidemill.live_tasks
                    WHERE state = 'running' AND leased_by = $1`;
  await eventually(
    async () => {
      const worker = program?.said["worker"];
      const { rows } = await database.pool.query<{ count: number }>(running, [worker]);
      expect(rows[0]?.count).toBeGreaterThan(1);
    },
    { timeoutMs: RUN_MS_MAX, everyMs: 2 },
  );
}

/** In the middle of it: a deploy, a crash, a target that is gone for a while, another server. */
async function disturb(here: Scene, parts: Parts): Promise<void> {
  const { watcher, jobs, workers } = parts;
  const [first, second] = workers.splice(0, 2);
  await until(watcher, 0.15);
  const draining = first?.end("SIGTERM");
  workers.push(await startJobs(jobs));
  expect(await draining, first?.complaint()).toBe(0);
  await until(watcher, 0.3);
  await isCalling(here, second);
  await second?.end("SIGKILL");
  await until(watcher, 0.45);
  await parts.targets.end("SIGKILL");
  workers.push(await startJobs(jobs)); // Meanwhile it is gone.
  parts.targets = await startTarget(parts.target);
  await until(watcher, 0.6);
  await parts.restartServer();
}

function report(seconds: number, { watcher }: Parts, table: string, tally: Tally): string {
  const { attempts, calls, uncalled, lost, cut, late, unheard } = tally;
  return [
    `${JOBS} jobs in ${seconds.toFixed(0)} s`,
    table,
    `${attempts} attempts: ${calls} calls in the target's record, ${uncalled} never came there`,
    `${lost} lost with their worker, ${cut} cut with their target, ${late} out of time`,
    `${unheard} answers of 200 that nobody heard, each called again under its key`,
    `${watcher.changes} changes told over ${watcher.streams} streams`,
    "",
  ].join("\n");
}

it(
  `ends ${JOBS} jobs from three topics as they must, and accounts for every attempt`,
  async () => {
    const here = await scene(used.broker);
    const parts = await startParts(here);
    const { watcher, workers, target } = parts;
    const startedMs = performance.now();
    await disturb(here, parts);
    await until(watcher, 1);
    const seconds = (performance.now() - startedMs) / 1000;
    for (const code of await Promise.all(workers.map((one) => one.end("SIGTERM")))) {
      expect(code, workers.map((one) => one.complaint()).join("\n")).toBe(0);
    }
    const { entries, strays } = await readBooks(here.database, target.record);
    const [faults, tally] = auditJobs(entries, JOBS);
    faults.push(...auditFeed(entries, watcher.tasks, await readFeed(here.database)));
    process.stdout.write(report(seconds, parts, tableOf(entries), tally));
    expect(faults.slice(0, FAULTS_SHOWN), `${faults.length} faults`).toEqual([]);
    expect(watcher.complaints).toEqual([]);
    expect({ strays, streams: watcher.streams }).toEqual({ strays: 0, streams: 2 });
    // Or the faults missed it.
    expect(Math.min(tally.lost, tally.cut, tally.late)).toBeGreaterThan(0);
  },
  RUN_MS_MAX + 60_000,
);
