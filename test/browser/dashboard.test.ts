import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ApiKeyAdmin } from "../../src/server/auth/api-key-admin.ts";
import { ADMIN, OTHER, READER } from "../integration/feed/scene.ts";
import { eventually } from "../support/eventually.ts";
import { actSuite } from "./act-suite.ts";
import { axe, LAYOUT } from "./axe.ts";
import { buildDashboard } from "./build.ts";
import { operatorSuite } from "./operator-suite.ts";
import { partitionSuite } from "./partition-suite.ts";
import { pictureSuite } from "./picture-suite.ts";
import {
  bank,
  hasChromium,
  letter,
  live,
  menu,
  openBrowser,
  openShop,
  openVisit,
  rowOf,
  type Shop,
  signIn,
  type Visit,
} from "./scene.ts";
import { sightSuite } from "./sight-suite.ts";
import { steadySuite } from "./steady-suite.ts";
import { troubleSuite } from "./trouble-suite.ts";

const FIRST_LOAD_MAX = 200_000;

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

const visit = (token?: string, options?: BrowserContextOptions): Promise<Visit> =>
  openVisit({ shop, browser }, token, options);

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
    await eventually(async () => expect(await shop.streams()).toBe(1));
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

  it("names the transaction that holds the feed", async () => {
    const { page } = await visit(ADMIN);
    const held = page.getByText(/^The feed is held for .+ by pid \d+/);
    await shop.mill.transaction(async (tx) => {
      await shop.mill.enqueue("letters", { to: "Eve" }, { tx });
      await enqueue("letters", { to: "Bob" });
      await held.waitFor();
    });
    await held.waitFor({ state: "detached" });
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
    await page.getByRole("button", { name: "Redrive", exact: true }).click();
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
    // That it is, not why: a reason may be about another tenant.
    const seen = other.page.getByRole("row").filter({ hasText: "letters" });
    await seen.getByText("paused").waitFor();
    expect(await other.page.getByText("a fire").count()).toBe(0);
    await menu(page, "Overview");
    await page.getByText("Queue letters is paused (a fire)").waitFor();
    await menu(page, "Queues");
    await page.getByRole("button", { name: "Resume queue letters" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await row.getByText("open").waitFor();
    await seen.getByText("open").waitFor();
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
    await shop.mill.quotas.put("acme", { rate: { count: 100, seconds: 60 } });
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
    const quota = "5,000 tasks, 100 creates per 60 s";
    await page.getByRole("row").filter({ hasText: quota }).waitFor();
    await page.getByRole("button", { name: `Revoke ${apiKey.id}` }).click();
    await page.getByRole("button", { name: "Revoke it for ever" }).click();
    await page.getByText("revoked", { exact: true }).waitFor();
    expect((await keys.get(apiKey.id)).state).toBe("revoked");
    expect(await page.content()).not.toContain(key.reveal());
    expect(seen.faults).toEqual([]);
  });
});

/** As a link does, without loading everything again. */
async function go(page: Page, path: string): Promise<void> {
  await page.evaluate(`history.pushState(null, "", ${JSON.stringify(path)})`);
  await live(page);
}

operatorSuite(() => ({ shop, browser }));
sightSuite(() => ({ shop, browser }));
actSuite(() => ({ shop, browser }));
troubleSuite(() => ({ shop, browser }));
steadySuite(() => ({ shop, browser }));
partitionSuite(() => ({ shop, browser }));

const PAGES = [
  "/",
  "/queues",
  "/tasks",
  "/dead-letters",
  "/consumers?name=invoices",
  "/ring",
  "/schedules",
  "/tenants?tenant=default",
  "/audit",
];

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
    const waiting = `/tasks/${await letter(shop)}`;
    for (const path of [...PAGES, waiting, `/tasks/${id}`]) {
      await go(page, path);
      expect(await axe(page), path).toEqual([]);
    }
    await page.getByRole("button", { name: "Edit and redrive" }).click();
    expect(await axe(page), "a dialog").toEqual([]);
    await page.keyboard.press("Escape");
    await go(page, "/queues");
    await page.getByRole("button", { name: "Limits of queue letters" }).click();
    expect(await axe(page), "a dialog with fields").toEqual([]);
    expect(seen.faults).toEqual([]);
  });

  it("fits into 360 pixels, without a fault that axe finds", async () => {
    const id = await deadPayment({ text: "x".repeat(300) });
    const { page } = await visit(ADMIN, { viewport: { width: 360, height: 740 } });
    const waiting = `/tasks/${await letter(shop)}`;
    for (const path of [...PAGES, waiting, `/tasks/${id}`]) {
      await go(page, path);
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect(width, path).toBeLessThanOrEqual(360);
      expect(await axe(page, LAYOUT), path).toEqual([]);
    }
    await page.getByRole("button", { name: "Edit and redrive" }).click();
    expect(await axe(page), "a dialog").toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Menu" }).click();
    expect(await axe(page), "the menu").toEqual([]);
    await menu(page, "Queues");
    await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
  });

  it("fills a wide screen without scrolling sideways", async () => {
    const { page } = await visit(ADMIN, { viewport: { width: 3840, height: 2160 } });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(3840);
    const { width = 0 } = (await page.getByRole("main").boundingBox()) ?? {};
    expect(width).toBeGreaterThan(3000);
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

pictureSuite(() => ({ shop, browser }));
