import { expect, it } from "vitest";
import { testDatabase } from "../../support/database.ts";
import { cli } from "./cli.ts";
import { expectAllRefused } from "./refused.ts";

it("shows and changes quotas, each part for itself", async () => {
  const database = await testDatabase();
  const run = (...args: string[]): Promise<string> => cli(database.url, "tenant", ...args);
  expect(await run("list")).toMatch(/^No tenant has a quota/);
  const given = ["--pending-tasks", "1000", "--rate", "50/1"];
  expect(await run("quota", "acme", ...given)).toBe(
    "Tenant acme: 1,000 tasks, 50 creates in 1 s.\n" +
      "It has 0 tasks, 0 bytes. Servers follow within two seconds.\n",
  );
  await run("quota", "acme", "--pending-bytes", "5", "--rate", "none");
  expect(JSON.parse(await run("quota", "acme", "--json"))).toEqual({
    tenant: "acme",
    pendingTasks: 1_000,
    pendingBytes: 5,
    rate: null,
    used: { tasks: 0, bytes: 0 },
  });
  expect(await run("list")).toMatch(/^ *TENANT +TASKS +BYTES +RATE\n *acme +1,000 +5 +-\n$/);
  await run("quota", "acme", "--pending-tasks", "none", "--pending-bytes", "none");
  expect(JSON.parse(await run("list", "--json"))).toEqual([]);
  expect(await run("quota", "acme")).toBe("Tenant acme: no quota.\n");
  await expectAllRefused(database, [
    [["tenant", "quota", "acme", "--pending-tasks", "-1"], 2, /whole number/],
    [["tenant", "quota", "acme", "--rate", "5"], 2, /COUNT\/SECONDS/],
    [["tenant", "quota", "a".repeat(201), "--rate", "5/1"], 1, /at most 200 bytes/],
  ]);
});
