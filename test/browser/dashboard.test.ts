import { readdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { bucketOf } from "../../src/cluster/ring.ts";
import { ApiKeyAdmin } from "../../src/server/auth/api-key-admin.ts";
import { ADMIN, OTHER, READER } from "../integration/feed/scene.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import {
  bank,
  buildDashboard,
  hasChromium,
  live,
  openBrowser,
  openShop,
  picture,
  type Shop,
  signIn,
  traffic,
  type Watch,
  watch,
} from "./scene.ts";

const FIRST_LOAD_MAX = 200_000;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

let folder: string;
let shop: Shop;
let browser: Browser;

beforeAll(async () => {
  if (!hasChromium()) return;
  [folder, browser] = await Promise.all([buildDashboard(), openBrowser()]);
  shop = await openShop(folder);
});

beforeEach((ctx) => {
  if (!hasChromium()) ctx.skip("chromium is not installed: apt-get install chromium");
});

interface Visit {
  readonly page: Page;
  readonly seen: Watch;
  /** Another tab of the same browser. */
  readonly tab: () => Promise<Page>;
}

async function visit(token?: string, options: BrowserContextOptions = {}): Promise<Visit> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  onCleanup(() => context.close());
  context.setDefaultTimeout(10_000);
  const seen = await watch(context, shop.url);
  const page = await context.newPage();
  if (token !== undefined) await signIn(page, shop.url, token);
  return { page, seen, tab: () => context.newPage() };
}

const menu = (page: Page, name: string): Promise<void> =>
  page.getByRole("navigation").getByRole("link", { name }).click();

/** Of a list of tasks. */
const rowOf = (page: Page, id: string): Locator =>
  page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) });

const enqueue = async (queue: string, payload: unknown): Promise<string> =>
  (await shop.mill.enqueue(queue, payload)).id;

/** A payment that has died. */
async function deadPayment(payload: unknown): Promise<string> {
  bank.isOpen = false;
  const id = await enqueue("payments", payload);
  await eventually(async () => {
    expect((await shop.mill.tasks.get(id)).state).toBe("dead");
  });
  return id;
}

describe("signing in", () => {
  it("takes a token by keyboard alone, keeps it in the tab, and lets it go", async () => {
    const { page, seen } = await visit();
    await page.goto(`${shop.url}/queues`);
    await page.getByLabel("Token").waitFor();
    await page.keyboard.type("wrong-token");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.keyboard.press("ControlOrMeta+A");
    await page.keyboard.type(ADMIN);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
    expect(page.url()).toBe(`${shop.url}/queues`);
    expect(await page.evaluate("JSON.stringify(localStorage)")).not.toContain("token-of");
    await page.reload();
    await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    expect(seen.faults).toEqual([]);
  });

  it("shows each token what it may see and do", async () => {
    const admin = await visit(ADMIN);
    const names = async (page: Page): Promise<string[]> =>
      await page.getByRole("navigation").getByRole("listitem").allInnerTexts();
    expect(await names(admin.page)).toContain("Consumers");
    const { page } = await visit(READER);
    expect(await names(page)).toEqual(["Overview", "Queues", "Tasks", "Dead letters", "Schedules"]);
    await page.goto(`${shop.url}/consumers`);
    await page.getByRole("heading", { name: "There is nothing here" }).waitFor();
    const id = await deadPayment({ reader: true });
    await page.goto(`${shop.url}/tasks/${id}`);
    await page.getByText("Attempt 1 failed").first().waitFor();
    expect(await page.getByRole("button", { name: "Redrive" }).count()).toBe(0);
    const other = await visit(OTHER);
    await other.page.goto(`${shop.url}/tasks/${id}`);
    await other.page.getByRole("alert").waitFor();
  });
});

describe("live", () => {
  it("shows a new task in all tabs over one stream, without a reload", async () => {
    const { page, tab, seen } = await visit(ADMIN);
    await menu(page, "Tasks");
    const second = await tab();
    await signIn(second, shop.url, ADMIN);
    await menu(second, "Tasks");
    await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
    const id = await enqueue("letters", { to: "Ada" });
    await Promise.all([rowOf(page, id).waitFor(), rowOf(second, id).waitFor()]);
    const soon = { timeoutMs: 5_000 };
    await eventually(async () => expect(await shop.streams()).toBe(1), soon);
    await rowOf(page, id).getByRole("link").click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByLabel("Reason (optional)").fill("not needed");
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await rowOf(second, id).getByText("cancelled").waitFor();
    expect(seen.faults).toEqual([]);
  });

  it("comes back by itself when the connection was lost", async () => {
    const { page } = await visit(ADMIN);
    await menu(page, "Tasks");
    await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
    shop.cut();
    const id = await enqueue("letters", { to: "Bob" });
    await rowOf(page, id).waitFor();
  });
});

describe("acts", () => {
  it("redrive a dead task by keyboard, after asking", async () => {
    const id = await deadPayment({ amount: 1 });
    const { page, seen } = await visit(ADMIN);
    await page.goto(`${shop.url}/tasks/${id}`);
    const button = page.getByRole("button", { name: "Redrive", exact: true });
    await button.focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    // By its tag: one that is closed has no role any more, a moment before it is gone.
    await page.locator("dialog").waitFor({ state: "detached" });
    expect((await shop.mill.tasks.get(id)).state).toBe("dead");
    bank.isOpen = true;
    await page.keyboard.press("Enter");
    await dialog.waitFor();
    await dialog.getByRole("button", { name: "Redrive" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("listitem").filter({ hasText: "Completed" }).waitFor();
    expect(seen.faults).toEqual([]);
  });

  it("edit a payload and redrive it, digit by digit", async () => {
    const id = await deadPayment({ amount: 1 });
    const { page } = await visit(ADMIN);
    await page.goto(`${shop.url}/tasks/${id}`);
    await page.getByRole("button", { name: "Edit and redrive" }).click();
    const field = page.getByLabel("Payload (JSON)");
    await field.fill("{ nonsense");
    await page.getByRole("button", { name: "Store and redrive" }).click();
    await page.getByRole("alert").filter({ hasText: "This is not JSON" }).waitFor();
    bank.isOpen = true;
    await field.fill('{"amount": 12345678901234567890}');
    await page.getByRole("button", { name: "Store and redrive" }).click();
    await page.getByRole("listitem").filter({ hasText: "Completed" }).waitFor();
    await page.getByText('"amount": 12345678901234567890').waitFor();
  });

  it("redrive all tasks that died of the same", async () => {
    await Promise.all([deadPayment(1), deadPayment(2)]);
    const { page } = await visit(ADMIN);
    await menu(page, "Dead letters");
    await page.getByLabel("Select the bank does not answer").check();
    bank.isOpen = true;
    await page.getByRole("button", { name: "Redrive" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click();
    await page.getByText("Nothing has died.").waitFor();
  });

  it("pause and resume a queue, which others see", async () => {
    const { page } = await visit(ADMIN);
    const other = await visit(READER);
    await menu(page, "Queues");
    await page.getByRole("button", { name: "Pause queue letters" }).click();
    await page.getByLabel("Reason (optional)").fill("a fire");
    await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
    const row = page.getByRole("row").filter({ hasText: "letters" });
    await row.getByText("a fire").waitFor();
    await menu(other.page, "Queues");
    await other.page.getByText("a fire").waitFor();
    await menu(page, "Overview");
    await page.getByText("Queue letters is paused (a fire)").waitFor();
    await menu(page, "Queues");
    await page.getByRole("button", { name: "Resume queue letters" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await row.getByText("open").waitFor();
  });

  it("skip the event that stopped a consumer, with a reason", async () => {
    const stream = { type: "order", id: "1" };
    await shop.mill.append(stream, [{ type: "OrderLost", data: { note: "<b>no</b>" } }]);
    const { page } = await visit(ADMIN);
    const problem = page.getByText("Consumer invoices stopped at position 1 after 1 failure");
    await problem.waitFor();
    await page.getByRole("link", { name: /Fix its handler and resume it/ }).click();
    await page.getByText('"note": "<b>no</b>"').waitFor();
    await page.getByRole("button", { name: "Skip the event" }).click();
    const skip = page.getByRole("button", { name: "Skip it for ever" });
    await skip.click();
    await page.getByRole("alert").filter({ hasText: "Say why" }).waitFor();
    await page.getByLabel("Reason").fill("order 4711 was a test");
    await skip.click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.getByRole("row").filter({ hasText: "invoices" }).getByText("running").waitFor();
    await page.getByText("a person skipped it: order 4711 was a test").waitFor();
  });
});

describe("tenants", () => {
  it("have quotas that can be changed, and keys that can be revoked", async () => {
    const keys = new ApiKeyAdmin(shop.mill.engine.db);
    const { apiKey, key } = await keys.create({ tenant: "acme", scopes: ["read"] });
    const { page, seen } = await visit(ADMIN);
    await menu(page, "Tenants");
    await page.getByRole("link", { name: "acme" }).click();
    await page.getByRole("button", { name: "Change the quota" }).click();
    const tasks = page.getByLabel("Tasks that wait or run; empty for no limit");
    await tasks.fill("many");
    await page.getByRole("button", { name: "Change it" }).click();
    await page.getByRole("alert").filter({ hasText: "a whole number" }).waitFor();
    await tasks.fill("5000");
    await page.getByRole("button", { name: "Change it" }).click();
    await page.getByRole("row").filter({ hasText: "5,000 tasks" }).waitFor();
    await page.getByRole("button", { name: `Revoke ${apiKey.id}` }).click();
    await page.getByRole("button", { name: "Revoke it for ever" }).click();
    await page.getByText("revoked", { exact: true }).waitFor();
    expect((await keys.get(apiKey.id)).state).toBe("revoked");
    expect(await page.content()).not.toContain(key.reveal());
    expect(seen.faults).toEqual([]);
  });
});

describe("the ring", () => {
  it("tells whose a key is, and what would move", async () => {
    await shop.mill.enqueue("orders", 1, { partitionKey: "order-4711" });
    const { page, seen } = await visit(ADMIN);
    await menu(page, "Ring");
    await page.getByLabel("Whose is this key?").fill("order-4711");
    const bucket = bucketOf("order-4711");
    await page.getByText(`Key “order-4711” is in bucket ${bucket}`).waitFor();
    await page.getByLabel("What would move if").selectOption("join");
    await page.getByText(/^1\d\d buckets of 360 would move; nothing has changed\.$/).waitFor();
    expect(seen.faults).toEqual([]);
  });
});

/** As a link does, without loading everything again. */
async function go(page: Page, path: string): Promise<void> {
  await page.evaluate(`history.pushState(null, "", ${JSON.stringify(path)})`);
  await live(page);
}

const PAGES = [
  "/",
  "/queues",
  "/tasks",
  "/dead-letters",
  "/consumers?name=invoices",
  "/ring",
  "/schedules",
  "/tenants?tenant=default",
];

interface AxeResult {
  readonly violations: readonly { id: string; nodes: readonly { target: unknown }[] }[];
}

async function axe(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(AXE, "utf8"));
  const { violations } = await page.evaluate<AxeResult>("axe.run()");
  return violations.map(({ id, nodes }) => `${id}: ${JSON.stringify(nodes.map((n) => n.target))}`);
}

describe("for everybody", () => {
  it.each(["light", "dark"] as const)("has no fault that axe finds, in %s", async (colorScheme) => {
    const id = await deadPayment({ order: 4711, lines: [{ sku: "A-1", count: 2 }] });
    await shop.mill.schedules.put("nightly report", { cron: "0 3 * * *", queue: "mails" });
    for (const count of [1, 2, 3]) await enqueue("mails", { count });
    const { page, seen } = await visit(undefined, { colorScheme });
    await page.goto(shop.url);
    await page.getByLabel("Token").waitFor();
    expect(await axe(page)).toEqual([]);
    await signIn(page, shop.url, ADMIN);
    await page.getByText(/tasks? of queue payments died/).waitFor();
    if (colorScheme === "light") await traffic(shop, page);
    for (const path of [...PAGES, `/tasks/${id}`]) {
      await go(page, path);
      await picture(page, `${colorScheme}${path.replaceAll(/[^a-z]+/g, "-")}`);
      expect(await axe(page), path).toEqual([]);
    }
    await page.getByRole("button", { name: "Edit and redrive" }).click();
    await picture(page, `${colorScheme}-dialog`);
    expect(await axe(page), "dialog").toEqual([]);
    expect(seen.faults).toEqual([]);
  });

  it("fits into 360 pixels", async () => {
    const id = await deadPayment({ text: "x".repeat(300) });
    const { page } = await visit(ADMIN, { viewport: { width: 360, height: 740 } });
    for (const path of [...PAGES, `/tasks/${id}`]) {
      await go(page, path);
      await picture(page, `small${path.replaceAll(/[^a-z]+/g, "-")}`);
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect(width, path).toBeLessThanOrEqual(360);
    }
    await page.getByRole("button", { name: "Menu" }).click();
    await menu(page, "Queues");
    await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
  });

  it("is small at first load", async () => {
    const files = await readdir(folder, { recursive: true });
    const sizes = await Promise.all(
      files
        .filter((file) => /\.(html|js|css|svg)$/.test(file))
        .map(async (file) => gzipSync(await readFile(join(folder, file))).length),
    );
    expect(sizes.length).toBeGreaterThan(3);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(FIRST_LOAD_MAX);
  });
});
