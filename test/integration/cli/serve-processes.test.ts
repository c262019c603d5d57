import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type RunningCli, startCli } from "./cli.ts";

const FREE = ["--http", "0", "--producer", "0", "--worker", "0", "--metrics", "0"];
const COUNT = 2;
const ALL_SERVE = /"message":"all processes of the server serve"/;

interface Line {
  readonly message: string;
  readonly process: number;
  readonly http: string;
  readonly metrics: string;
}

async function begun(): Promise<{ all: RunningCli; at: Line[] }> {
  const { url } = await testDatabase();
  const flags = ["--insecure-no-auth", "--processes", String(COUNT), ...FREE];
  const all = startCli(["serve", ...flags], { env: { DATABASE_URL: url } });
  await all.line(ALL_SERVE);
  return { all, at: await Promise.all(range(COUNT).map((place) => serving(all, place))) };
}

const range = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

/** The line with which the server at a place says where it listens. */
async function serving(all: RunningCli, place: number): Promise<Line> {
  const pattern = new RegExp(`"process":${place},.*"message":"serving"`);
  return JSON.parse(await all.line(pattern)) as Line;
}

/** Who has answered how many requests. */
async function answered(at: readonly Line[]): Promise<number[]> {
  const pages = at.map(async ({ metrics }) => {
    const text = await (await fetch(`http://${metrics}/metrics`)).text();
    const counts = text.matchAll(/^tidemill_http_requests_total\{[^}]*\} (\d+)$/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  });
  return await Promise.all(pages);
}

/** Each on a connection of its own. */
async function ask(http: string, times: number): Promise<void> {
  for (const _ of range(times)) {
    const answer = await fetch(`http://${http}/v1/me`, { headers: { connection: "close" } });
    expect(answer.status).toBe(200);
    await answer.text();
  }
}

/** The processes that share the ports. */
async function childrenOf({ child }: RunningCli): Promise<number[]> {
  const file = `/proc/${child.pid}/task/${child.pid}/children`;
  return (await readFile(file, "utf8")).trim().split(" ").map(Number);
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

it("serves on the same ports from several processes, and starts one that dies again", async () => {
  const { all, at } = await begun();
  expect(new Set(at.map(({ http }) => http)).size).toBe(1);
  expect(new Set(at.map(({ metrics }) => metrics)).size).toBe(COUNT);
  await ask(at[0]?.http ?? "", 4 * COUNT);
  for (const count of await answered(at)) expect(count).toBeGreaterThan(0);

  const pids = await childrenOf(all);
  process.kill(pids[0] ?? 0, "SIGKILL");
  await all.line(/"message":"a server process ended: started again"/);
  await ask(at[0]?.http ?? "", 2 * COUNT);
  await eventually(() => {
    expect(all.lines.filter((line) => ALL_SERVE.test(line))).toHaveLength(2);
  });
  const now = await childrenOf(all);
  expect(now).toHaveLength(COUNT);
  expect(now).not.toContain(pids[0]);

  all.child.kill("SIGTERM");
  const { code, stdout } = await all.ended;
  expect(code).toBe(0);
  expect(stdout.match(/"message":"stopped"/g)).toHaveLength(COUNT);
});

it("ends all of them when they cannot start, and when who shares the ports is killed", async () => {
  const { all, at } = await begun();
  const taken = at[0]?.http ?? "";
  const { url } = await testDatabase();
  const flags = ["--insecure-no-auth", "--processes", "2", ...FREE, "--http", taken];
  const { code, stderr } = await startCli(["serve", ...flags], { env: { DATABASE_URL: url } })
    .ended;
  expect(code).toBe(2);
  expect(stderr).toContain(`cannot listen on ${taken} for http`);

  const pids = await childrenOf(all);
  all.child.kill("SIGKILL");
  await eventually(() => expect(pids.filter(isAlive)).toEqual([]));
});
