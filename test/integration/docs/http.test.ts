import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { HttpListener } from "../../../src/server/http/listener.ts";
import { onCleanup } from "../../support/database.ts";
import { bearer, openScene } from "../server/http-scene.ts";
import { blocksOf, readPage } from "./blocks.ts";

const run = promisify(execFile);
const PAGE = "docs/how-to/use-the-http-api.md";

it("the commands of the page about the HTTP API do what it says", async (context) => {
  const curl = await run("curl", ["--version"]).catch(() => undefined);
  if (curl === undefined) return context.skip("curl is not installed");
  const { api } = await openScene({ until: "test" });
  const listener = new HttpListener({ port: 0 }, { name: "http", fetch: api.fetch });
  const URL = `http://127.0.0.1:${await listener.listen()}`;
  const supervisor = new Supervisor([listener]);
  onCleanup(() => supervisor.stop());
  const env = { ...process.env, URL, TOKEN: bearer("admin").replace("Bearer ", "") };
  const answers: object[] = [];
  for (const { code } of blocksOf(PAGE, "sh")) {
    const { stdout } = await run("sh", ["-c", code], { env });
    answers.push(JSON.parse(stdout) as object);
  }
  expect(answers).toMatchObject([
    { name: "mails", isPaused: false },
    { id: "1", queue: "mails" },
    { id: "1", state: "pending" },
    { why: expect.stringContaining("no live worker") },
    { token: "1", positions: ["1"] },
    { status: 404, code: "TM_NOT_FOUND" },
    { deadLetters: [] },
    { redriven: 0, hasMore: false },
  ]);
  expect(readPage(PAGE)).toContain(`It answers \`${JSON.stringify(answers[1])}\``);
  const [problem] = blocksOf(PAGE, "json").map(({ code }) => JSON.parse(code) as object);
  expect(answers[5]).toEqual({ ...problem, requestId: expect.any(String) });
});
