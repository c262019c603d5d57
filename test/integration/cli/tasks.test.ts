import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { completed, failed, nack, queue, type Tidemill } from "../../../src/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, runCli, STEADY, startCli } from "./cli.ts";
import { pipedCli } from "./piped.ts";
import { expectAllRefused, expectRefused, type Refusal } from "./refused.ts";

interface Mail {
  readonly to: string;
}

const mails = queue<Mail, { sent: string }>("mails", {
  maxAttempts: 2,
  backoff: { baseSeconds: 0.01, maxSeconds: 0.02 },
});
const letters = queue("letters");

let database: TestDatabase;
let mill: Tidemill;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
});

/** Makes the queue known without a task of it. */
async function register(): Promise<void> {
  const { id } = await mill.enqueue(mails, { to: "nobody" });
  await mill.tasks.cancel(id);
}

async function handleMails(): Promise<void> {
  const handler = mails.handle((task) => {
    if (task.payload.to === "mallory") return failed("refused for good", { retry: false });
    if (task.payload.to === "later") return nack(3_600, "the mailbox is full");
    if (task.payload.to === "nowhere") throw new Error("no such\nmailbox");
    return completed({ sent: task.payload.to });
  });
  await mill.startWorker({ ...STEADY, handlers: [handler] });
}

describe("task enqueue", () => {
  it("prints the id, and with --wait the result", async () => {
    await handleMails();
    expect(await cli(database.url, "task", "enqueue", "mails", '{"to":"ada"}')).toMatch(/^\d+\n$/);
    const waited = await cli(database.url, "task", "enqueue", "mails", '{"to":"eve"}', "--wait");
    expect(waited).toMatch(/^\d+\n\{\n {2}"sent": "eve"\n\}\n$/);
    const args = ["task", "enqueue", "mails", '{"to":"bob"}', "--wait", "--json"];
    expect(JSON.parse(await cli(database.url, ...args))).toEqual({
      id: expect.stringMatching(/^\d+$/),
      queue: "mails",
      result: { sent: "bob" },
    });
  });

  it("passes every option on", async () => {
    await register();
    const enqueue = ["task", "enqueue", "mails", '{"to":"ada"}', "--json"];
    const options = [
      ["--kind", "welcome", "--priority", "high", "--key", "customer-7", "--tenant", "acme"],
      ["--max-attempts", "9", "--timeout", "1.5", "--webhook", "https://example.com/hook"],
      ["--run-at", "2100-01-31T09:00:00+01:00", "--idempotency-key", "once"],
    ].flat();
    const { id } = JSON.parse(await cli(database.url, ...enqueue, ...options));
    expect(await mill.tasks.get(id)).toMatchObject({
      state: "scheduled",
      kind: "welcome",
      priority: 8,
      partitionKey: "customer-7",
      tenant: "acme",
      maxAttempts: 9,
      webhook: "https://example.com/hook",
      runAt: new Date("2100-01-31T08:00:00Z"),
    });
    const again = JSON.parse(await cli(database.url, ...enqueue, ...options));
    expect(again).toEqual({ id, queue: "mails" });
  });

  it("reads the payload from a file or from standard input", async () => {
    await register();
    const folder = await mkdtemp(join(tmpdir(), "tidemill-cli-"));
    onCleanup(() => rm(folder, { recursive: true }));
    const file = join(folder, "mail.json");
    await writeFile(file, '{"to":"file"}');
    const fromFile = await cli(database.url, "task", "enqueue", "mails", `@${file}`);
    const piped = await pipedCli(database.url, '{"to":"pipe"}', "task", "enqueue", "mails", "-");
    expect(await mill.tasks.get(fromFile.trim())).toMatchObject({ payload: { to: "file" } });
    expect(await mill.tasks.get(piped.trim())).toMatchObject({ payload: { to: "pipe" } });
  });

  it("fails when the task that it waited for did, or when it takes too long", async () => {
    await handleMails();
    await mill.tasks.cancel((await mill.enqueue(letters, 1)).id);
    const wait = async (...args: string[]) =>
      await runCli(["task", "enqueue", ...args], { env: { DATABASE_URL: database.url } });
    const [refused, late] = await Promise.all([
      wait("mails", '{"to":"mallory"}', "--wait"),
      wait("letters", "1", "--wait-timeout", "0.2"),
    ]);
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringMatching(/^\d+\n$/) });
    expect(refused.stderr).toMatch(/^tidemill: task \d+ .*refused for good\n$/);
    expect(late).toMatchObject({ code: 1, stdout: expect.stringMatching(/^\d+\n$/) });
    expect(late.stderr).toMatch(/did not end within 0.2 s: no live worker handles queue "letters"/);
  });

  it("refuses what it cannot store, and stores nothing", async () => {
    await register();
    const enqueue = ["task", "enqueue", "mails"];
    const refusals: Refusal[] = [
      [[...enqueue, "{to:1}"], 2, /the payload is not JSON: .*; quote it for the shell/],
      [[...enqueue, "@/no/such/file"], 2, /the payload cannot be read: ENOENT/],
      [[...enqueue], 2, /missing required argument 'payload'/],
      [["task", "enqueue", "mials", "1"], 1, /no queue "mials"; registered are "mails"/],
      [[...enqueue, "1", "--prioity", "3"], 2, /Did you mean --priority\?/],
      [[...enqueue, "1", "--priority", "10"], 2, /--priority.*high, normal, low, or a number/],
      [[...enqueue, "1", "--run-at", "2026-01-31"], 2, /--run-at.*an instant with its offset/],
      [[...enqueue, "1", "--delay", "soon"], 2, /--delay.*a number of seconds/],
      [[...enqueue, "1", "--webhook", "ftp://x"], 1, /webhook must be an http or https URL/],
      [
        ["task", "enqueu", "mails", "1"],
        2,
        /unknown command 'enqueu'; did you mean "tidemill task enqueue"\?/,
      ],
    ];
    await expectAllRefused(database, refusals);
  });
});

describe("task get", () => {
  it("shows all facts of a dead task: failures, payload and the ways on", async () => {
    await handleMails();
    const { id } = await mill.enqueue(mails, { to: "nowhere" }, { kind: "welcome" });
    await expect(mill.result(id)).rejects.toThrow("died");
    const shown = (await cli(database.url, "task", "get", id))
      .replace(new RegExp(`(Task|retry|edit) ${id}\\b`, "g"), "$1 ID")
      .replace(/\d{4}-\S+Z \(.* ago\)/g, "THEN")
      .replace(/THEN +failed/g, "THEN  failed")
      .replace(/(worker +)\S+/, "$1WORKER")
      .replace(/failed {3}[0-9a-f]{8}/g, "failed   WORKER")
      .replace(/AT +OUTCOME/, "AT    OUTCOME")
      .replace(/^ {4}at .*\n/gm, "");
    expect(shown).toMatchInlineSnapshot(`
      "Task ID is dead
        queue       mails
        kind        welcome
        priority    5 (normal)
        attempts    2 of 2
        created     THEN
        run at      THEN
        claimed     THEN
        worker      WORKER
        finished    THEN
        cause       attempts_exhausted
        reason      no such mailbox

      Payload
        {
          "to": "nowhere"
        }

      Failures
        ATTEMPT  AT    OUTCOME  WORKER    REASON
              1  THEN  failed   WORKER  no such mailbox
              2  THEN  failed   WORKER  no such mailbox

      Fix the handler, then run it again: tidemill task retry ID
      Or fix its payload before: tidemill dead edit ID '...'
      "
    `);
  });

  it("shows why a task that waits was put back", async () => {
    await handleMails();
    const { id } = await mill.enqueue(mails, { to: "later" });
    await eventually(async () =>
      expect(await cli(database.url, "task", "get", id)).toMatch(
        /is scheduled\n[^]* reason +the mailbox is full\n/,
      ),
    );
    const document = JSON.parse(await cli(database.url, "task", "get", id, "--json"));
    expect(document).toMatchObject({ state: "scheduled", reason: "the mailbox is full" });
  });

  it("gives one document to programs, bytes as base64", async () => {
    const { id } = await mill.enqueue(letters, new Uint8Array([1, 2, 3]));
    expect(JSON.parse(await cli(database.url, "task", "get", id, "--json"))).toMatchObject({
      id,
      state: "pending",
      queue: "letters",
      payload: { base64: "AQID" },
      contentType: "application/octet-stream",
      failures: [],
    });
    const shown = await cli(database.url, "task", "get", id);
    expect(shown).toMatch(/why +no live worker handles queue "letters"; start one\n/);
    expect(shown).toContain("Payload\n  3 bytes: AQID\n");
  });

  it("names a task that does not exist", async () => {
    await expectRefused(database, ["task", "get", "4711"], { code: 1, says: /no task 4711/ });
    await expectRefused(database, ["task", "get", "x"], { code: 2, says: /the number of a task/ });
  });
});

it("task list shows the newest first, page by page, and only what is asked for", async () => {
  const first = await mill.enqueue(mails, { to: "a" }, { partitionKey: "k", tenant: "acme" });
  const second = await mill.enqueue(mails, { to: "b" }, { delaySeconds: 3_600 });
  const third = await mill.enqueue(letters, 1);
  const ids = async (...args: string[]): Promise<string[]> =>
    JSON.parse(await cli(database.url, "task", "list", "--json", ...args)).map(
      (one: { id: string }) => one.id,
    );
  expect(await ids()).toEqual([third.id, second.id, first.id]);
  expect(await ids("--queue", "mails")).toEqual([second.id, first.id]);
  expect(await ids("--state", "scheduled")).toEqual([second.id]);
  expect(await ids("--key", "k", "--tenant", "acme")).toEqual([first.id]);
  expect(await ids("--before", second.id)).toEqual([first.id]);
  const page = await cli(database.url, "task", "list", "--limit", "2");
  expect(page).toMatch(new RegExp(`^ +TASK +STATE +QUEUE .*\n +${third.id} +pending +letters`));
  expect(page).toContain(`Older ones: --before ${second.id}\n`);
  expect(await cli(database.url, "task", "list", "--state", "dead")).toBe("No such task.\n");
  await expectRefused(database, ["task", "list", "--state", "ded"], { code: 2, says: /Allowed/ });
  await expectRefused(database, ["task", "list", "--queue", "x"], { code: 1, says: /"letters"/ });
});

it("a waiting task is cancelled for good, a running one is told, and a retry revives", async () => {
  const handler = letters.handle(
    async (_, { signal }) =>
      await new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("told to stop")));
      }),
  );
  await mill.startWorker({ ...STEADY, handlers: [handler] });
  const waiting = await mill.enqueue(mails, { to: "ada" });
  const running = await mill.enqueue(letters, 1);
  await eventually(async () => {
    expect(await mill.tasks.get(running.id)).toMatchObject({ state: "running" });
  });
  const cancel = async (id: string, ...args: string[]): Promise<string> =>
    await cli(database.url, "task", "cancel", id, ...args);
  expect(await cancel(waiting.id, "--reason", "sold out")).toBe(
    `Task ${waiting.id} is cancelled.\n`,
  );
  expect(await mill.tasks.get(waiting.id)).toMatchObject({ reason: "sold out" });
  expect(JSON.parse(await cancel(running.id, "--json"))).toEqual({
    id: running.id,
    state: "cancelling",
  });
  await eventually(async () => {
    expect(await mill.tasks.get(running.id)).toMatchObject({ state: "cancelled" });
  });
  expect(await cli(database.url, "task", "retry", waiting.id)).toBe(
    `Task ${waiting.id} was cancelled, and runs as soon as a worker has a free slot.\n`,
  );
  expect(await mill.tasks.get(waiting.id)).toMatchObject({ state: "pending" });
  await cancel(waiting.id);
  await expectRefused(database, ["task", "cancel", waiting.id], { code: 1, says: /nothing to/ });
});

it("why says in a sentence what keeps a task from running", async () => {
  const { id } = await mill.enqueue(mails, { to: "ada" });
  expect(await cli(database.url, "why", id)).toBe(
    `Task ${id}: no live worker handles queue "mails"; start one\n`,
  );
  await mill.queues.pause("mails", { reason: "deploying" });
  const { why } = JSON.parse(await cli(database.url, "why", id, "--json"));
  expect(why).toMatch(/^queue "mails" is paused since .* \(deploying\); resume it$/);
  await expectRefused(database, ["why", "4711"], { code: 1, says: /no task 4711/ });
});

it("status shows the queues, too", async () => {
  await mill.enqueue(mails, { to: "ada" });
  const shown = await cli(database.url, "status");
  expect(shown).toMatch(/QUEUE +STATE +DEPTH +RUNNING +DEAD +OLDEST\n +mails +open +1 +0 +- /);
  expect(shown).not.toContain("No consumer");
  const watching = startCli(["status", "--watch", "--json"], {
    env: { DATABASE_URL: database.url },
  });
  await watching.line(/"queues":\[\{"name":"mails"/);
  watching.child.kill("SIGINT");
  expect(await watching.ended).toMatchObject({ code: 0, stderr: "" });
});
