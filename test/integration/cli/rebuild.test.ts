import { expect, it } from "vitest";
import { appendOrders, builtScene, orderView, VIEW } from "../consumers/rebuild-scene.ts";
import { cli, runCli } from "./cli.ts";

it("a projection is rebuilt, compared, swapped, rolled back and cancelled", async () => {
  const { database, mill } = await builtScene(20);
  const rebuild = (move: string, ...flags: string[]): Promise<string> =>
    cli(database.url, "consumer", "rebuild", move, VIEW, ...flags);

  const started = await rebuild("start", "--partitions", "2", "--reason", "VAT", "--wait");
  expect(started).toMatch(
    /^Rebuild of order_view_v1 has started, in 2 partition\(s\) and schema tidemill_rebuild_1\.\n/,
  );
  expect(started).toMatch(/order_view_v1 {2}█{24} 100\.0 % {2}20 of 20 .*\n$/);
  expect(await rebuild("pause")).toBe(
    "Rebuild of order_view_v1 is paused; order_view_v1 itself goes on.\n",
  );
  const status = await rebuild("status");
  expect(status).toContain("  reason: VAT\n");
  expect(status).toMatch(/order_view_v1~rebuild\/1 +paused +20\n/);
  expect(await rebuild("resume")).toBe("Rebuild of order_view_v1 goes on.\n");

  await database.pool.query("UPDATE order_view SET cents = 4711 WHERE id = 'order-3'");
  const compared = await runCli(["consumer", "rebuild", "compare", VIEW], {
    env: { DATABASE_URL: database.url },
  });
  expect(compared.code).toBe(1);
  expect(compared.stdout).toMatch(/^At position 20 both sides are not the same\.\n/);
  expect(compared.stdout).toMatch(/public\.order_view +10 +10 +0 +0 +1 +all\n/);
  expect(compared.stdout).toContain('different in public.order_view: ["order-3"]\n');

  const unasked = await runCli(["consumer", "rebuild", "swap", VIEW], {
    env: { DATABASE_URL: database.url },
  });
  expect(unasked.stderr).toContain("add --yes to go on");
  expect(await rebuild("swap", "--yes")).toContain("goes on at position 20.");
  const json = JSON.parse(await rebuild("status", "--json")) as { state: string; schema: string };
  expect(json).toMatchObject({ state: "swapped", schema: "tidemill_before_1" });
  await appendOrders(mill, 10);
  expect(await rebuild("rollback", "--yes")).toContain("has its tables from before");
  expect(await rebuild("cancel", "--yes")).toBe(
    "Rebuild of order_view_v1 is cancelled, and its tables are dropped.\n",
  );
  await mill.waitFor(orderView(), { position: 30n });
});
