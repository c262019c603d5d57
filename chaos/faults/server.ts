import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { Tidemill } from "../../src/index.ts";
import type { Random } from "../../test/support/random.ts";
import { whyNoDisk } from "../disk.ts";
import type { Stage } from "../stage.ts";
import { type Fault, oneOf, RESTART_MS, RESUME_MS } from "./fault.ts";

/** The database itself, its sessions, and who else uses it. */
export const SERVER_FAULTS: readonly Fault[] = [
  onBackends("terminate-backends", "TRUE", 4),
  onBackends("terminate-leader", ofPurpose("leader")),
  onBackends("terminate-listener", ofPurpose("listener")),
  {
    kind: "terminate-in-commit",
    boundMs: RESUME_MS,
    async strike(stage, random) {
      const met = await stage.withClient((client) => terminateInCommit(client, random));
      return [`${met} sessions that were committing`];
    },
  },
  {
    kind: "kill-backend",
    boundMs: RESTART_MS,
    async strike(stage) {
      const victim = await connect(stage.server.url);
      process.kill(await backendOf(victim), "SIGKILL"); // All others are told to go.
      await untilItAnswers(stage);
      return ["a backend"];
    },
  },
  {
    kind: "crash-server",
    boundMs: RESTART_MS,
    async strike(stage) {
      await stage.server.crash();
      await stage.server.start();
      return ["the server"];
    },
  },
  {
    kind: "stop-server",
    boundMs: RESTART_MS,
    async strike(stage, random) {
      await stage.server.stop();
      await delay(1_000 + random.below(4_000));
      await stage.server.start();
      return ["the server"];
    },
  },
  {
    kind: "long-stop",
    boundMs: RESTART_MS,
    async strike(stage) {
      await stage.server.stop();
      await delay(20_000);
      await stage.server.start();
      return ["the server"];
    },
  },
  {
    kind: "full-disk",
    boundMs: RESTART_MS,
    whyNot: whyNoDisk,
    async strike(stage) {
      const { disk, server } = stage;
      if (disk === undefined) throw new Error("the server has no disk of its own");
      for (let time = 0; time < 15; time += 1) {
        await disk.fill();
        await delay(200);
      }
      await disk.free();
      await server.start(); // A server that cannot write its log gives up.
      await untilItAnswers(stage);
      return ["the server"];
    },
  },
  {
    kind: "exhaust-connections",
    boundMs: RESUME_MS,
    async strike(stage) {
      const held = await exhaust(stage.server.url);
      await delay(2_000);
      await Promise.all(held.map((client) => client.end().catch(() => {})));
      return [`${held.length} connections`];
    },
  },
  {
    kind: "roll-back",
    boundMs: RESUME_MS,
    async strike(stage) {
      const mill = await Tidemill.connect(stage.server.url);
      await Promise.all(Array.from({ length: 8 }, () => rollBackAppends(stage, mill)));
      await mill.close();
      return ["200 transactions"];
    },
  },
  {
    kind: "long-writer",
    boundMs: RESUME_MS,
    async strike(stage) {
      const elsewhere = new URL(stage.server.url);
      elsewhere.pathname = "/template1";
      const client = await connect(elsewhere.href);
      await client.query("BEGIN");
      await client.query("SELECT pg_current_xact_id()");
      await delay(3_000);
      await client.end();
      return ["a transaction in another database"];
    },
  },
];

/** Ends sessions of ours that a condition picks, one at a time. */
function onBackends(kind: string, which: string, times = 1): Fault {
  const text = `
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND backend_type = 'client backend' AND ${which}
     ORDER BY application_name, backend_start`;
  return {
    kind,
    boundMs: RESUME_MS,
    async strike(stage, random) {
      await stage.withClient(async (client) => {
        for (let time = 0; time < times; time += 1) {
          const { rows } = await client.query<{ pid: number }>(text);
          if (rows.length > 0) await client.query(TERMINATE, [oneOf(rows, random).pid]);
          await delay(500);
        }
      });
      return [which];
    },
  };
}

const TERMINATE = "SELECT pg_terminate_backend($1)";

const IN_COMMIT = `
  SELECT pid FROM pg_stat_activity
   WHERE datname = current_database() AND state = 'active' AND wait_event = 'SyncRep'
     AND pid <> ALL ($1)
   ORDER BY application_name, backend_start`;
const IN_COMMIT_MAX = 8;
const IN_COMMIT_MS = 1_000;

/**
 * A commit is over in no time. So all of them wait for a standby that is not there, and some
 * sessions are ended meanwhile: what they did is durable, and nobody has told them so.
 */
async function terminateInCommit(client: pg.Client, random: Random): Promise<number> {
  const met: number[] = [];
  const deadlineMs = performance.now() + IN_COMMIT_MS;
  try {
    await client.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    await client.query("SELECT pg_reload_conf()");
    while (met.length < IN_COMMIT_MAX && performance.now() < deadlineMs) {
      const { rows } = await client.query<{ pid: number }>(IN_COMMIT, [met]);
      if (rows.length > 0) {
        const { pid } = oneOf(rows, random);
        await client.query(TERMINATE, [pid]);
        met.push(pid);
      }
      await delay(10);
    }
  } finally {
    await client.query("ALTER SYSTEM RESET synchronous_standby_names");
    await client.query("SELECT pg_reload_conf()");
  }
  if (met.length === 0) throw new Error("nobody was committing");
  return met.length;
}

/** The system names its connections after what they are for. */
function ofPurpose(purpose: string): string {
  return `application_name LIKE '% ${purpose}'`;
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {}); // It may be ended on purpose.
  await client.connect();
  return client;
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  const [row] = rows;
  if (row === undefined) throw new Error("no backend");
  return row.pid;
}

async function untilItAnswers(stage: Stage): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (performance.now() < deadline) {
    const asked = stage.withClient((client) => client.query("SELECT 1"));
    const isUp = await asked.then(
      () => true,
      () => false,
    );
    if (isUp) return;
    await delay(50);
  }
  throw new Error("the server does not answer");
}

/** Takes every connection that is left. */
async function exhaust(url: string): Promise<pg.Client[]> {
  const held: pg.Client[] = [];
  for (;;) {
    const client = await connect(url).catch(() => undefined);
    if (client === undefined) return held;
    held.push(client);
  }
}

/** Nobody writes these names down: whatever of them is there at the end is not expected. */
async function rollBackAppends(stage: Stage, mill: Tidemill): Promise<void> {
  const stream = { type: "Chaos", id: "rolled back" };
  const events = [{ type: "Happened", data: { name: "rolled back" } }];
  await stage.withClient(async (client) => {
    const pid = await backendOf(client);
    for (let time = 0; time < 25; time += 1) {
      await client.query("BEGIN");
      await client.query("SAVEPOINT one");
      await mill.append(stream, events, { tx: client });
      if (time % 3 === 0) await client.query("ROLLBACK TO one");
      if (time % 5 === 0) {
        await client.query(`PREPARE TRANSACTION 'chaos-${pid}-${time}'`);
        await client.query(`ROLLBACK PREPARED 'chaos-${pid}-${time}'`);
      } else {
        await client.query("ROLLBACK");
      }
    }
  });
}
