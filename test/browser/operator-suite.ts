import type { Locator, Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { bucketOf } from "../../src/cluster/ring.ts";
import { appendOrders, VIEW } from "../integration/consumers/rebuild-scene.ts";
import { ADMIN } from "../integration/feed/scene.ts";
import { gate } from "../integration/tasks/scene.ts";
import { eventually } from "../support/eventually.ts";
import {
  bank,
  clerk,
  confirm,
  letter,
  live,
  menu,
  openVisit,
  type Place,
  post,
  rowOf,
  signIn,
  TRACE,
  type Visit,
} from "./scene.ts";

const SOON_MS = 500;

/** When a tab first shows a text, by the clock of the browser, in milliseconds since 1970. */
async function shownAt(page: Page, text: string): Promise<() => Promise<number>> {
  await page.evaluate(`void (window.shownAtMs = new Promise((resolve) => {
    const look = () => document.body.textContent.includes(${JSON.stringify(text)});
    const observer = new MutationObserver(() => {
      if (!look()) return;
      observer.disconnect();
      resolve(Date.now());
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
  }))`);
  return () => page.evaluate<number>("window.shownAtMs");
}

/** Clicks, and tells when the page heard of it. */
async function clickAt(page: Page, button: Locator): Promise<number> {
  await page.evaluate(
    `addEventListener("click", () => { window.clickedAtMs = Date.now(); }, { capture: true })`,
  );
  await button.click();
  return await page.evaluate<number>("window.clickedAtMs");
}

/** What those who look after the cluster do. */
export function operatorSuite(at: () => Place): void {
  const visit = (): Promise<Visit> => openVisit(at(), ADMIN);
  const secondTab = async (tab: Visit["tab"]): Promise<Page> => {
    const page = await tab();
    await signIn(page, at().shop.url, ADMIN);
    return page;
  };

  describe("two tabs", () => {
    it("see each other's changes within half a second, whatever page they show", async () => {
      const { page, tab, seen } = await visit();
      const second = await secondTab(tab);
      await menu(second, "Audit");
      await second.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
      await live(second);
      await page.bringToFront();
      await menu(page, "Queues");
      await page.getByRole("button", { name: "Limits of queue letters" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Tasks that run at once").fill("7");
      await dialog.getByLabel(/^Starts per time/).fill("many");
      await dialog.getByRole("button", { name: "Change them" }).click();
      await dialog.getByRole("alert").filter({ hasText: "such as 50 per 1 s" }).waitFor();
      await dialog.getByLabel(/^Starts per time/).fill("50 per 2 s");
      const limited = "limited queue letters (concurrency 7, rate 50 per 2 s)";
      const seenAt = await shownAt(second, limited);
      const doneAt = await clickAt(page, dialog.getByRole("button", { name: "Change them" }));
      expect((await seenAt()) - doneAt).toBeLessThanOrEqual(SOON_MS);
      const [letters] = (await at().shop.mill.queues.list()).filter(
        (one) => one.name === "letters",
      );
      expect(letters?.limits).toMatchObject({ concurrency: 7, rate: { count: 50, seconds: 2 } });
      await second.bringToFront();
      await menu(second, "Queues");
      const row = second.getByRole("row").filter({ hasText: "letters" });
      await row.getByText("7 at once, 50 per 2 s").waitFor();
      await menu(second, "Audit");
      await second.getByText(limited).waitFor();
      await page.bringToFront();
      await page.getByRole("button", { name: "Limits of queue letters" }).click();
      await confirm(page, "Change them", async (open) => {
        await open.getByLabel("Let the limits of the definition hold again").check();
      });
      await second.bringToFront();
      await second.getByText("reset the limits of queue letters").waitFor();
      expect(seen.faults).toEqual([]);
    });

    it("see a task that was cancelled, and why, at once", async () => {
      const id = await letter(at().shop);
      const { page, tab, seen } = await visit();
      const second = await secondTab(tab);
      await menu(second, "Tasks");
      await rowOf(second, id).getByText("pending").waitFor();
      await page.bringToFront();
      await page.goto(`${at().shop.url}/tasks/${id}`);
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByLabel("Reason (optional)").fill(`${id} is not needed`);
      const seenAt = await shownAt(second, `${id} is not needed`);
      const doneAt = await clickAt(page, page.getByRole("button", { name: "Cancel the task" }));
      expect((await seenAt()) - doneAt).toBeLessThanOrEqual(SOON_MS);
      await rowOf(second, id).getByText("cancelled").waitFor();
      expect(seen.faults).toEqual([]);
    });

    it("see a consumer that was paused, and why, at once", async () => {
      const { page, tab } = await visit();
      const second = await secondTab(tab);
      await second.goto(`${at().shop.url}/consumers`);
      await page.goto(`${at().shop.url}/consumers?name=order_view`);
      const name = second.getByRole("link", { name: "order_view", exact: true });
      const shown = second.getByRole("row").filter({ has: name });
      await shown.getByText("running").waitFor();
      await page.bringToFront();
      await page.getByRole("button", { name: "Pause", exact: true }).click();
      await page.getByLabel("Reason (optional)").fill("a look");
      const seenAt = await shownAt(second, "paused");
      const doneAt = await clickAt(
        page,
        page.getByRole("dialog").getByText("Pause", { exact: true }),
      );
      expect((await seenAt()) - doneAt).toBeLessThanOrEqual(SOON_MS);
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await confirm(page, "Resume");
      await page.getByRole("button", { name: "Rewind" }).click();
      const rewind = page.getByRole("dialog").getByRole("button", { name: "Rewind", exact: true });
      await rewind.click();
      await page.getByRole("alert").filter({ hasText: "Say why" }).waitFor();
      await page.getByLabel("Reason").fill("a new column");
      await rewind.click();
      await page.getByRole("alert").filter({ hasText: "A position is a whole number" }).waitFor();
      await confirm(page, "Rewind", (dialog) => dialog.getByLabel("To position").fill("0"));
      await menu(page, "Audit");
      await page
        .getByRole("row")
        .filter({ hasText: "rewound consumer order_view (to 0)" })
        .waitFor();
      await page.getByText("a new column").waitFor();
    });
  });

  describe("the ring", () => {
    it("tells whose a key is, what would move, and where the load is", async () => {
      const { mill } = at().shop;
      const key = "order-<b>4711</b>";
      for (let count = 0; count < 3; count += 1) {
        await (await mill.enqueue("orders", count, { partitionKey: key })).result();
      }
      const { page, seen } = await visit();
      await menu(page, "Ring");
      await page.getByLabel("Key space").selectOption("orders of default");
      await page.getByLabel("Whose is this key?").fill(key);
      await page.getByText(`Key “${key}” is in bucket ${bucketOf(key)}`).waitFor();
      const hot = page.getByRole("row").filter({ hasText: key });
      await hot.getByRole("cell", { name: String(bucketOf(key)), exact: true }).waitFor();
      await page.getByLabel("What would move if").selectOption("join");
      await page.getByText("180 buckets of 360 would move; nothing has changed.").waitFor();
      const moves = page.getByRole("region", { name: "Moves, table" }).getByRole("row");
      const newcomer = moves.filter({ hasText: "a new worker" });
      await newcomer.getByRole("cell", { name: "180", exact: true }).waitFor();
      await page.getByLabel("Whose is this key?").fill("order-4711");
      const slider = page.getByLabel(/^Virtual nodes per worker/);
      await slider.fill("1");
      await page.getByText("Virtual nodes per worker: 1, to try; the leader has 150").waitFor();
      await page
        .getByRole("img", { name: /and 2 virtual nodes; 180 buckets would move/ })
        .waitFor();
      await slider.press("ArrowRight");
      await page.getByRole("img", { name: /and 4 virtual nodes/ }).waitFor();
      expect(seen.faults).toEqual([]);
    });

    it("draws heartbeats to scale, and marks who died", async () => {
      const { page } = await visit();
      await menu(page, "Ring");
      await page
        .getByText(/beats every 0\.2 s, may be silent for 5 s, leases 30 s; joined at/)
        .first()
        .waitFor();
      const heart = page.getByRole("img", { name: /^Heartbeats of / }).first();
      const widths = await heart
        .locator("rect")
        .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
      expect((widths[1] ?? 0) / (widths[0] ?? 1)).toBeCloseTo(6, 0);
      const { mill } = at().shop;
      const died = "deadbeef-0000-4000-8000-000000004711";
      await mill.engine.db.query({
        name: "a_death",
        text: `INSERT INTO {schema}.worker_info
                      (worker_id, status, host, pid, version, capabilities, ended_at)
               VALUES ('${died}', 'dead', 'there', 1, '1', '{}', NOW())`,
      });
      const row = page.getByRole("listitem").filter({ hasText: "deadbeef" });
      await row.getByText(/found dead at/).waitFor();
    });
  });

  describe("a projection", () => {
    it("is rebuilt, compared, swapped and rolled back", async () => {
      const { mill } = at().shop;
      clerk.isRight = false;
      await appendOrders(mill, 1);
      await mill.waitFor(VIEW, { position: await appendOrders(mill, 20) });
      clerk.isRight = true;
      const { page, tab, seen } = await visit();
      await page.goto(`${at().shop.url}/consumers?name=${VIEW}`);
      await page.getByRole("button", { name: "Rebuild", exact: true }).click();
      await confirm(page, "Start the rebuild", (dialog) =>
        dialog.getByLabel("Reason (optional)").fill("cents were doubled"),
      );
      const second = await secondTab(tab);
      await second.goto(`${at().shop.url}/consumers?name=${VIEW}`);
      await second.getByText(/^100 %: position \d+ of \d+.*at the head of the log$/).waitFor();
      await page.bringToFront();
      await page.getByRole("progressbar", { name: "100 % rebuilt" }).waitFor();
      await page.getByRole("button", { name: "Compare", exact: true }).click();
      await confirm(page, "Compare");
      await page.getByText(/both sides are not the same$/).waitFor();
      const table = page.getByRole("row").filter({ hasText: "public.order_view" });
      await table.getByRole("cell", { name: "10", exact: true }).first().waitFor();
      await page.getByText("different in public.order_view").first().waitFor();
      await page.getByRole("button", { name: "Swap: rebuild" }).click();
      const swappedAt = await shownAt(second, "swapped in");
      await confirm(page, "Swap the tables");
      await swappedAt();
      const cents = async (): Promise<number> => {
        const rows = await mill.engine.db.query<{ cents: number }>({
          name: "cents",
          text: "SELECT sum(cents)::int AS cents FROM public.order_view",
        });
        return rows[0]?.cents ?? 0;
      };
      expect(await cents()).toBe(21);
      await page.getByRole("button", { name: "Roll back: rebuild" }).click();
      const rolledBackAt = await shownAt(second, "rolled back");
      await confirm(page, "Roll back");
      await rolledBackAt();
      expect(await cents()).toBeGreaterThan(21);
      await page.getByRole("button", { name: "Cancel: rebuild" }).click();
      await confirm(page, "Drop the rebuilt tables");
      await page.getByRole("button", { name: "Rebuild", exact: true }).waitFor();
      expect(seen.faults).toEqual([]);
    });
  });

  describe("one desk", () => {
    it("redrives tasks by filter, and only those", async () => {
      const { mill } = at().shop;
      bank.isOpen = false;
      const kinds = ["invoice", "invoice", "fee"];
      const tasks = await Promise.all(
        kinds.map((kind, amount) => mill.enqueue("payments", { amount }, { kind })),
      );
      const states = async (): Promise<string[]> =>
        (await Promise.all(tasks.map(({ id }) => mill.tasks.get(id)))).map(({ state }) => state);
      await eventually(async () => expect(await states()).toEqual(["dead", "dead", "dead"]));
      const { page, seen } = await visit();
      await menu(page, "Dead letters");
      await page.getByLabel("Kind").fill("invoice");
      await page.waitForURL(/kind=invoice/);
      await page.getByRole("button", { name: "Redrive all" }).click();
      await page.getByRole("dialog").getByText("Those of kind invoice.").waitFor();
      await page.getByRole("heading", { name: "Redrive 2 dead letters?" }).waitFor();
      bank.isOpen = true;
      await confirm(page, "Redrive");
      await page.getByText("Nothing like that.").waitFor();
      await eventually(async () =>
        expect(await states()).toEqual(["completed", "completed", "dead"]),
      );
      await page.getByLabel("Kind").fill("fee");
      await page.waitForURL(/kind=fee/);
      await page.getByRole("button", { name: "Purge all" }).click();
      await confirm(page, "Delete for good");
      await page.getByText("Nothing like that.").waitFor();
      expect(seen.faults).toEqual([]);
    });

    it("replays events that a consumer set aside", async () => {
      const { mill } = at().shop;
      post.canRead = false;
      for (const id of ["1", "2"]) {
        await mill.append({ type: "letter", id }, [{ type: "LetterTorn", data: {} }]);
      }
      const { page, seen } = await visit();
      await menu(page, "Dead letters");
      const error = "letter # is torn <script>";
      const row = page.getByRole("row").filter({ hasText: error });
      await row.getByText("of 2 streams").waitFor();
      const select = page.getByLabel(`Select ${error} of letters_out`);
      const replay = page.getByRole("button", { name: "Replay" });
      // Those that fail again can be selected again, although there are as many as before.
      const office = gate();
      post.opened = office.opened;
      await select.check();
      await replay.click();
      await confirm(page, "Replay");
      await row.getByText("replaying").first().waitFor();
      office.open();
      await row.getByText("replaying").waitFor({ state: "detached" });
      await select.check();
      post.canRead = true;
      await replay.click();
      await confirm(page, "Replay", (dialog) =>
        dialog.getByLabel("Reason (optional)").fill("glue"),
      );
      await row.waitFor({ state: "detached" });
      const parked = await mill.consumers.parked();
      expect(parked.groups).toEqual([]);
      expect(seen.faults).toEqual([]);
    });
  });

  describe("a task", () => {
    it("names the event that caused it, its key and its trace", async () => {
      const { mill } = at().shop;
      const note = "<img src=x onerror=alert(1)>";
      await mill.append({ type: "shop", id: "s-1" }, [{ type: "OrderPaid", data: { note } }]);
      const [task] = await mill.tasks.list({ queue: "receipts" });
      const { page, seen } = await visit();
      await page.goto(`${at().shop.url}/tasks/${task?.id}`);
      const position = Number(task?.causedBy).toLocaleString("en");
      await page.getByText(`Caused by the event at position ${position}`).waitFor();
      await page.getByText("OrderPaid of shop s-1").waitFor();
      expect(await page.getByText(note).count()).toBe(2);
      const about = page.getByRole("region", { name: "Details" });
      await about.getByText(TRACE.id, { exact: true }).waitFor();
      await about.getByText(TRACE.span, { exact: true }).waitFor();
      await page.getByRole("link", { name: "s-1", exact: true }).click();
      await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
      expect(await page.getByLabel("Key").inputValue()).toBe("s-1");
      expect(seen.faults).toEqual([]);
    });
  });
}
