import type { Page } from "playwright-core";
import { expect, it } from "vitest";
import { ApiKeyAdmin } from "../../src/server/auth/api-key-admin.ts";
import { ADMIN } from "../integration/feed/scene.ts";
import { eventually } from "../support/eventually.ts";
import { books, die, live, openVisit, type Place, picture, type Shop, traffic } from "./scene.ts";

const PICTURED = [
  ["/", "dashboard-overview"],
  ["/queues", "dashboard-queues"],
  ["/tasks", "dashboard-tasks"],
  ["/dead-letters", "dashboard-dead-letters"],
  ["/consumers?name=invoices", "dashboard-consumers"],
  ["/schedules?name=nightly%20report", "dashboard-schedules"],
  ["/tenants?tenant=acme", "dashboard-tenants"],
  ["/audit", "dashboard-audit"],
] as const;

/** Something to be seen on every page: acts, a quota, a key, and a consumer that stopped. */
async function stage({ mill, url }: Shop): Promise<void> {
  const act = async (method: string, path: string, body: object): Promise<void> => {
    const headers = { authorization: `Bearer ${ADMIN}`, "content-type": "application/json" };
    const answer = await fetch(url + path, { method, headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
  };
  const loseAnOrder = async (id: string): Promise<void> => {
    books.hasCustomer = false;
    const data = { order: id, customer: null };
    await mill.append({ type: "order", id }, [{ type: "OrderLost", data }]);
    await eventually(async () => {
      expect((await mill.consumers.progress("invoices")).state).toBe("quarantined");
    });
  };
  await act("POST", "/v1/queues/letters/pause", { reason: "the printer is out of paper" });
  await act("POST", "/v1/queues/letters/resume", {});
  await act("PUT", "/v1/queues/orders/limits", { rate: { count: 40, seconds: 1 } });
  const quota = { pendingTasks: 5_000, rate: { count: 100, seconds: 60 } };
  await act("PUT", "/v1/tenants/acme/quota", quota);
  const keys = new ApiKeyAdmin(mill.engine.db);
  await keys.create({ tenant: "acme", name: "warehouse", scopes: ["producer", "read"] });
  await mill.schedules.put("nightly report", { cron: "0 3 * * *", queue: "mails" });
  await mill.schedules.put("stock count", { cron: "*/15 * * * 1-5", queue: "mails" });
  await mill.schedules.runNow("nightly report");
  await loseAnOrder("4710");
  await act("POST", "/v1/consumers/invoices/skip", { reason: "order 4710 was a test" });
  await loseAnOrder("4711");
}

/** The ring of three workers, asked about a key and about a fourth. */
async function pictureRing(page: Page): Promise<void> {
  await page.getByLabel("Key space").selectOption("orders of default");
  const owners = page.getByRole("region", { name: "Owners, table" }).getByRole("row");
  await owners.nth(3).waitFor(); // Below the head.
  await page.getByLabel("Whose is this key?").fill("customer-0");
  await page.getByLabel("What would move if").selectOption("join");
  await page.getByText("would move; nothing has changed").waitFor();
  await page.getByRole("heading", { name: "Ring", level: 1 }).click();
  await picture(page, "dashboard-ring");
}

/** Every page as the documents show it. It is the last: the workers that it hires stay. */
export function pictureSuite(at: () => Place): void {
  it("looks as the documents show it, with three workers and some load", async () => {
    const { shop } = at();
    await Promise.all([shop.hire(), shop.hire()]);
    await stage(shop);
    const [id = ""] = await die(shop, 1, "fee");
    const { page, seen } = await openVisit(at(), ADMIN, { viewport: { width: 1280, height: 560 } });
    await traffic(shop, page);
    const open = async (path: string): Promise<void> => {
      await page.evaluate(`history.pushState(null, "", ${JSON.stringify(path)})`);
      await live(page);
    };
    for (const [path, name] of PICTURED) {
      await open(path);
      await picture(page, name);
    }
    await open(`/tasks/${id}`);
    await picture(page, "dashboard-task");
    await open("/ring");
    await pictureRing(page);
    await open("/");
    await page.getByLabel("Colour theme").selectOption("dark");
    await picture(page, "dashboard-overview-dark");
    await page.getByLabel("Colour theme").selectOption("light");
    await page.setViewportSize({ width: 360, height: 740 });
    await picture(page, "dashboard-overview-small");
    expect(seen.faults).toEqual([]);
  }, 300_000);
}
