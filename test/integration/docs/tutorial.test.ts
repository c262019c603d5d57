import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { program } from "../../support/programs.ts";
import { startCli } from "../cli/cli.ts";
import { blocksOf, REPOSITORY, readPage } from "./blocks.ts";

/** A terminal: one shell for all commands, as a person has it. */
class Terminal {
  readonly #shell: ChildProcess;
  #said = "";
  #marks = 0;

  constructor(folder: string, env: NodeJS.ProcessEnv) {
    this.#shell = spawn("bash", ["--noprofile", "--norc"], { cwd: folder, env });
    for (const stream of [this.#shell.stdout, this.#shell.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => (this.#said += text));
    }
    onCleanup(async () => void this.#shell.kill("SIGKILL"));
  }

  /** Types it, and reads what came of it. */
  async run(commands: string): Promise<string> {
    this.#marks += 1;
    const mark = `mark-${this.#marks}`;
    this.#said = "";
    this.#shell.stdin?.write(`${commands}\necho ${mark} $?\n`);
    const end = new RegExp(`^([\\s\\S]*?)${mark} (\\d+)\\n`);
    const [, said = "", code = ""] = await eventually(
      () => {
        const found = end.exec(this.#said);
        if (found === null) throw new Error(`${commands}\nhas not ended:\n${this.#said}`);
        return found;
      },
      { timeoutMs: 60_000 },
    );
    if (code !== "0") throw new Error(`${commands}\nended with ${code}:\n${said}`);
    return said;
  }
}

/** As a clone, where people save what the pages tell them to save. */
function clone(): string {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-tutorial-"));
  onCleanup(async () => rmSync(folder, { recursive: true }));
  for (const name of ["package.json", "tsconfig.json", "node_modules", "src", "sql"]) {
    symlinkSync(join(REPOSITORY, name), join(folder, name));
  }
  return folder;
}

const PAGES = Array.from(readPage("docs/tutorial/README.md").matchAll(/^\d+\. .*\((.*)\)$/gm)).map(
  ([, name]) => `docs/tutorial/${name}`,
);
const commandsOf = (page: number): string[] =>
  blocksOf(PAGES[page - 1] ?? "", "sh").map(({ code }) => code);

interface Demo {
  readonly refused: number;
  readonly happenings: readonly { readonly text: string }[];
}

it("every command and every program of the tutorial does what it says", async () => {
  expect(PAGES).toHaveLength(11);
  const { url } = await testDatabase({ migrated: false });
  const [start, shorthand = "", ...asking] = commandsOf(1);
  expect(start).toBe("npm run dev");
  const { scripts } = JSON.parse(readPage("package.json")) as { scripts: { dev: string } };
  expect(scripts.dev).toContain("src/cli/main.ts dev");
  const dev = startCli(["dev"], { env: { DATABASE_URL: url } });
  const exported = await dev.line(/^ {2}export /);
  await dev.line(/^Shop: http:\/\/127\.0\.0\.1:\d+\/shop /);
  await dev.line(/^position [1-9].* 4 workers /);

  const folder = clone();
  const terminal = new Terminal(folder, { ...process.env, DATABASE_URL: url });
  const type = async (page: number, commands = commandsOf(page)): Promise<string[]> => {
    const said: string[] = [];
    for (const command of commands) said.push(await terminal.run(command));
    return said;
  };
  const demo = async (): Promise<Demo> =>
    JSON.parse(
      await terminal.run('curl -fsS "$URL/v1/demo" -H "authorization: Bearer $TOKEN"'),
    ) as Demo;

  await terminal.run(exported);
  expect(shorthand).toMatch(/^tidemill\(\) \{ npx tsx src\/cli\/main\.ts "\$@"; \}$/);
  // The same program, which need not be compiled each time.
  await terminal.run(`tidemill() { node '${program("src/cli/main.ts")}' "$@"; }`);
  expect(await type(1, asking)).toEqual([expect.stringMatching(/order_view[\s\S]*receipts/)]);

  const [consumers, queues] = await type(2);
  expect(consumers).toMatch(/order_view +running/);
  expect(queues).toMatch(/receipts +open[\s\S]*refunds[\s\S]*completed/);

  const [placed, refused, paid, read] = await type(3);
  expect(placed).toContain('"positions":["');
  expect(refused).toMatch(/"status":409/);
  expect(paid).toContain('"positions":["');
  expect(read).toMatch(/OrderPlaced.*OrderPaid/);

  for (const page of [4, 5]) {
    const [code] = blocksOf(PAGES[page - 1] ?? "", "ts").map((block) => block.code);
    const name = /Save (?:it|this) as `(.*)`:/.exec(readPage(PAGES[page - 1] ?? ""))?.[1] ?? "";
    writeFileSync(join(folder, name), code ?? "");
  }
  const [first, again, retired] = await type(4);
  expect(first).toMatch(/^up to \d+n \{ orders: \d+, largest: \d+ \}$/m);
  expect(again).toMatch(/big_orders_v1 +unassigned/);
  expect(retired).toContain("big_orders_v1");

  const [refund] = await type(5);
  expect(refund).toMatch(/^rolled back \{ complaints: 0 \}\nrefunded by task \d+ completed$/m);

  const [letters, ring] = await type(6);
  expect(letters).toMatch(/refunds[\s\S]*receipts[\s\S]*receipts[\s\S]*receipts/);
  expect(ring).toContain("my-order");

  const [killed, , added, score] = await type(7);
  expect(killed).toContain('"state":"killed"');
  expect(added).toContain('"state":"starting"');
  expect(score).toMatch(/lost: 0, doubled: 0, outOfOrder: 0/);

  const [paused = "", resumed = "", late = ""] = commandsOf(8);
  await terminal.run(paused);
  await eventually(
    async () => {
      const { happenings } = await demo();
      const texts = happenings.map(({ text }) => text);
      expect(texts).toContainEqual(expect.stringMatching(/of worker-2 are done by others/));
    },
    { timeoutMs: 30_000 },
  );
  await terminal.run(resumed);
  await eventually(async () => expect((await demo()).refused).toBeGreaterThan(0), {
    timeoutMs: 20_000,
  });
  expect(await terminal.run(late)).toMatch(/lost: 0, doubled: 0, outOfOrder: 0, refused: [1-9]\d*/);

  const [list = "", redrive = ""] = commandsOf(9);
  await eventually(async () => expect(await terminal.run(list)).toMatch(/answered 500/), {
    timeoutMs: 40_000,
  });
  expect(await terminal.run(redrive)).toMatch(/[1-9]\d* /);

  const [reports, own, removed] = await type(10);
  expect(reports).toContain("report");
  expect(own).toMatch(/every-morning[\s\S]*Europe\/Berlin/);
  expect(removed).toContain("every-morning");

  expect(await type(11)).toEqual([expect.stringMatching(/lost: 0, doubled: 0, outOfOrder: 0/)]);
  dev.child.kill("SIGINT");
  const { code, stdout } = await dev.ended;
  expect(stdout).toMatch(/lost 0 · doubled 0 · out of order 0\nStopped\n$/);
  expect([0, 75]).toContain(code);
}, 180_000);
