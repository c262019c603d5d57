import { describe, expect, it } from "vitest";
import { ADMIN } from "../integration/feed/scene.ts";
import { gate } from "../integration/tasks/scene.ts";
import { eventually } from "../support/eventually.ts";
import { die, letter, live, menu, openVisit, type Place, rowOf, type Visit } from "./scene.ts";

const SCHEDULE = {
  tenant: "default",
  cron: "0 3 * * *",
  timeZone: "UTC",
  queue: "mails",
  payload: null,
  catchUp: "skip",
  missed: 0,
};
const KEY = {
  tenant: "tenant-1249",
  scopes: ["read"],
  queues: "all",
  state: "active",
  createdAt: "2026-01-31T09:00:00Z",
};

/** What stays in its place while something else is missing, broken, or asked for anew. */
export function steadySuite(at: () => Place): void {
  const visit = (): Promise<Visit> => openVisit(at(), ADMIN);

  describe("what the feed tells", () => {
    it("is called old on every page that shows it, until the feed is back", async () => {
      const { shop } = at();
      const { page } = await visit();
      await page.getByRole("heading", { name: "Workers" }).waitFor();
      const back = shop.leave();
      const note = page.getByText(/^Not current: this is as of /);
      for (const name of ["Overview", "Queues", "Consumers", "Ring"]) {
        await menu(page, name);
        await page.getByRole("heading", { name, level: 1 }).waitFor();
        await note.waitFor();
      }
      back();
      await page.getByRole("button", { name: "Try now" }).click();
      await note.waitFor({ state: "detached" });
    });

    it("is no silence of workers while nobody listened, and is drawn grey", async () => {
      const { page } = await visit();
      await menu(page, "Ring");
      // Whatever happened before this browser came is not known.
      await page
        .getByText(/^Nobody looked before .+: what is drawn grey is not known\.$/)
        .waitFor();
      expect(await page.getByText(/over its time to live/).count()).toBe(0);
    });
  });

  describe("a page that cannot be drawn", () => {
    it("says so with the error, and leaves the menu and the others as they are", async () => {
      const { page } = await visit();
      const calls = /\/v1\/schedules\?/;
      await page.route(calls, (route) => route.fulfill({ json: { schedules: [{}, null] } }));
      await menu(page, "Schedules");
      const alert = page.getByRole("alert").filter({ hasText: "This page cannot be shown" });
      await alert.getByText(/^TypeError: /).waitFor();
      await menu(page, "Queues");
      await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
      await menu(page, "Schedules");
      await alert.waitFor();
      await page.unroute(calls);
      await alert.getByRole("button", { name: "Reload" }).click();
      await page.getByRole("heading", { name: "Schedules", level: 1 }).waitFor();
    });

    it("is one whose program another version of the server does not have any more", async () => {
      const { shop } = at();
      const { page } = await visit();
      await page.route("**/v1/me", async (route) => {
        const answer = await route.fetch();
        await route.fulfill({ json: { ...(await answer.json()), pages: ["shop"] } });
      });
      await page.route(/\/assets\/shop-page/, (route) => route.fulfill({ status: 404 }));
      await page.goto(`${shop.url}/`);
      await menu(page, "Shop");
      await page.getByText("Was Tidemill upgraded since this tab was opened?").waitFor();
      await page.getByText(/dynamically imported module/).waitFor();
      await menu(page, "Tasks");
      await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
    });
  });

  describe("the page of a task", () => {
    it("shows what came although its attempts cannot be read", async () => {
      const { shop } = at();
      const id = await letter(shop);
      const { page } = await visit();
      await page.route("**/failures", (route) => route.abort());
      await page.goto(`${shop.url}/tasks/${id}`);
      const timeline = page.getByRole("region", { name: "Timeline" });
      await timeline.getByText("The server cannot be reached.").waitFor();
      await page.getByRole("region", { name: "Payload", exact: true }).getByText("Eve").waitFor();
      await page
        .getByRole("region", { name: "Why" })
        .getByText(/Why it is where it is/)
        .waitFor();
      await page.unroute("**/failures");
      await timeline.getByText("Enqueued into letters").waitFor();
    });
  });

  describe("dead letters", () => {
    it("stay in sight and selected while a filter is typed, which is looked for once", async () => {
      const { shop } = at();
      await die(shop, 1, "card");
      await die(shop, 1, "fee");
      const { page } = await visit();
      await menu(page, "Dead letters");
      const card = page.getByLabel("Select the card is void");
      await card.check();
      const looked = gate();
      let calls = 0;
      await page.route(/groups\?.*kind=/, async (route) => {
        calls += 1;
        await looked.opened;
        await route.continue();
      });
      const asked = page.waitForRequest(/groups\?.*kind=card/);
      await page.getByLabel("Kind").focus();
      const type = `(one) => document.execCommand("insertText", false, one)`;
      await page.evaluate(`[..."card"].forEach(${type})`);
      await asked;
      await eventually(() => expect(calls).toBe(1));
      expect(await card.isChecked()).toBe(true);
      // Nobody acts on what was found by another filter than the one that is typed.
      const purge = page.getByRole("button", { name: "Purge", exact: true });
      expect(await purge.isDisabled()).toBe(true);
      looked.open();
      await page.getByLabel("Select the bank does not answer").waitFor({ state: "detached" });
      expect(calls).toBe(1); // Not one for each letter.
      expect(await card.isChecked()).toBe(true);
      await eventually(async () => expect(await purge.isEnabled()).toBe(true));
      for (const kind of ["card", "fee"]) await shop.mill.deadLetters.purge({ kind });
    });
  });

  describe("the ring", () => {
    it("hashes nothing while the feed tells of other things", async () => {
      const { shop } = at();
      const { page } = await visit();
      // The hash of positions on the ring, which nothing else on the page uses.
      await page.evaluate(`(() => {
        const { imul } = Math;
        window.hashes = 0;
        Math.imul = (a, b) => { window.hashes += 1; return imul(a, b); };
      })()`);
      const hashes = (): Promise<number> => page.evaluate<number>("window.hashes");
      await shop.mill.enqueue("orders", 1, { partitionKey: "some" }).then((task) => task.result());
      await menu(page, "Ring");
      await page.getByRole("region", { name: "Owners, table" }).waitFor();
      await live(page);
      await page.getByLabel("What would move if").selectOption("join");
      await page.getByText("would move; nothing has changed").waitFor();
      const before = await hashes();
      expect(before).toBeGreaterThan(0);
      const heard = page.getByText(/\d+ heartbeats seen/).first();
      const first = await heard.innerText();
      await eventually(async () => expect(await heard.innerText()).not.toBe(first));
      expect(await hashes()).toBe(before);
    });
  });

  describe("a list that is long", () => {
    it("of schedules is fetched page by page, and says where it ends", async () => {
      const { page } = await visit();
      let pages = 0;
      await page.route(/\/v1\/schedules\?/, async (route) => {
        pages += 1;
        const cursor = new URL(route.request().url()).searchParams.get("cursor") ?? "0";
        const from = Number(cursor);
        const schedules = Array.from({ length: 200 }, (_, index) => ({
          ...SCHEDULE,
          name: `schedule ${from + index}`,
        }));
        await route.fulfill({ json: { schedules, cursor: String(from + 200) } });
      });
      await menu(page, "Schedules");
      const more = page.getByRole("button", { name: "More of them" });
      for (const last of [199, 399, 599, 799]) {
        await page.getByRole("link", { name: `schedule ${last}`, exact: true }).waitFor();
        await more.click();
      }
      await page.getByText("The list ends after 1,000.").waitFor();
      expect([await more.count(), pages]).toEqual([0, 5]);
    });

    it("of tenants and keys shows some, says so, and finds the others by name", async () => {
      const { page } = await visit();
      const names = Array.from({ length: 250 }, (_, index) => `tenant-${1_000 + index}`);
      const quota = { pendingTasks: 5, pendingBytes: null, rate: null };
      const tenants = names.map((tenant) => ({ tenant, ...quota }));
      const keys = names.map((id) => ({
        ...KEY,
        id,
      }));
      await page.route("**/v1/tenants", (route) => route.fulfill({ json: { tenants } }));
      await page.route("**/v1/keys", (route) => route.fulfill({ json: { keys } }));
      await menu(page, "Tenants");
      await page.getByText("The first 200 of 251; type a part of its name.").waitFor();
      expect(await rowOf(page, "tenant-1249").count()).toBe(0);
      await page.getByLabel("Part of a tenant’s name").fill("1249");
      await rowOf(page, "tenant-1249").getByRole("link").click();
      await page.getByText("The first 200 of 250; “tidemill key list” has the others.").waitFor();
    });
  });
}
