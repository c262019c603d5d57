import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { beforeAll, beforeEach, expect, it } from "vitest";
import { type RunningCli, startCli } from "../integration/cli/cli.ts";
import { onCleanup, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { axe } from "./axe.ts";
import { buildDashboard } from "./build.ts";
import {
  CALM,
  hasChromium,
  live,
  openBrowser,
  picture,
  signIn,
  type Watch,
  watch,
} from "./scene.ts";

let folder: string;
let browser: Browser;

beforeAll(async () => {
  if (!hasChromium()) return;
  [folder, browser] = await Promise.all([buildDashboard(), openBrowser()]);
});

beforeEach((ctx) => {
  if (!hasChromium()) ctx.skip("chromium is not installed: apt-get install chromium");
});

interface RunningShop {
  readonly dev: RunningCli;
  readonly url: string;
  readonly admin: string;
}

/** `tidemill dev`, with real processes. */
async function openDemo(): Promise<RunningShop> {
  const database = await testDatabase({ migrated: false });
  const env = { DATABASE_URL: database.url };
  const dev = startCli(["dev", "--workers", "2", "--rate", "20", "--dashboard", folder], { env });
  const [, url = "", admin = ""] =
    /URL='(.*)' TOKEN='(.*)'$/.exec(await dev.line(/^ {2}export /)) ?? [];
  return { dev, url, admin };
}

async function visit(
  { url, admin }: RunningShop,
  options: BrowserContextOptions = {},
): Promise<{ page: Page; seen: Watch }> {
  const context = await browser.newContext({ ...CALM, ...options });
  onCleanup(() => context.close());
  context.setDefaultTimeout(40_000); // Leases and silences on a machine that does more.
  const seen = await watch(context, url);
  const page = await context.newPage();
  await signIn(page, url, admin);
  await page.goto(`${url}/shop`);
  await live(page);
  await page.getByRole("heading", { name: "Shop", level: 1 }).waitFor();
  return { page, seen };
}

const rowOf = (page: Page, name: string): Locator =>
  page.getByRole("row").filter({ has: page.getByText(name, { exact: true }) });

async function expectState(page: Page, name: string, state: string): Promise<void> {
  await rowOf(page, name).getByText(state, { exact: true }).waitFor();
}

/** Of a pair of a name and a figure, the first number. */
async function figure(page: Page, name: string): Promise<number> {
  const value = page.locator("div").filter({ has: page.getByText(name, { exact: true }) });
  const text = await value.last().locator("dd").innerText();
  return Number(/[\d,]+/.exec(text)?.[0].replaceAll(",", ""));
}

async function grows(page: Page, name: string): Promise<void> {
  const before = await figure(page, name);
  await eventually(async () => expect(await figure(page, name)).toBeGreaterThan(before));
}

async function expectClean(page: Page): Promise<void> {
  const score = page.getByRole("status").filter({ hasText: "lost" });
  expect((await score.innerText()).replaceAll(/\s+/g, " ")).toBe(
    "lost 0 · doubled 0 · out of order 0",
  );
}

it("survives whatever its buttons do to the workers, and ends them all", async () => {
  const shop = await openDemo();
  const { page, seen } = await visit(shop);
  await expectState(page, "worker-1", "running");
  await expectState(page, "worker-2", "running");

  await page.getByLabel("Events per second").fill("60");
  await page.getByText("the shop takes 60 events a second").waitFor();
  await grows(page, "Orders");
  await grows(page, "Tasks done");
  await grows(page, "Events handled by all");

  await page.getByRole("button", { name: "Add a worker" }).click();
  await expectState(page, "worker-3", "running");
  await page.getByRole("button", { name: "Kill worker-1" }).click();
  await expectState(page, "worker-1", "killed");
  await picture(page, "dashboard-shop");

  await page.getByRole("button", { name: "Pause worker-2" }).click();
  await expectState(page, "worker-2", "paused");
  await page.getByText(/task\(s\) of worker-2 are done by others/).waitFor();
  await page.getByRole("button", { name: "Resume worker-2" }).click();
  await page
    .getByText(/worker-2 came too late to complete task/)
    .first()
    .waitFor();
  expect(await figure(page, "Late completions refused")).toBeGreaterThan(0);
  await grows(page, "Tasks done");
  await grows(page, "Events handled by all");
  await expectClean(page);

  await page.getByLabel("The courier, who is called over HTTP").selectOption("good");
  await page.getByText("the courier answers everything").waitFor();
  expect(await axe(page)).toEqual([]);
  await page.getByLabel("Colour theme").selectOption("dark");
  expect(await axe(page)).toEqual([]);
  await page.setViewportSize({ width: 360, height: 740 });
  expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(360);
  expect(await axe(page)).toEqual([]);
  expect(seen.faults).toEqual([]);

  // One that is paused could not hear that it should go.
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.getByRole("button", { name: "Pause worker-3" }).click();
  await expectState(page, "worker-3", "paused");
  const table = await page.getByRole("table").innerText();
  const pids = Array.from(table.matchAll(/pid (\d+)/g), ([, pid]) => Number(pid));
  expect(pids.length).toBeGreaterThan(2);
  shop.dev.child.kill("SIGINT");
  const { stdout } = await shop.dev.ended;
  expect(stdout).toMatch(/lost 0 · doubled 0 · out of order 0\nStopped\n$/);
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow(/ESRCH/);
}, 120_000);
