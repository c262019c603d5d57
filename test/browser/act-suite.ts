import { describe, expect, it } from "vitest";
import { ADMIN } from "../integration/feed/scene.ts";
import { gate } from "../integration/tasks/scene.ts";
import { onCleanup } from "../support/database.ts";
import {
  bank,
  books,
  confirm,
  die,
  letter,
  menu,
  openVisit,
  type Place,
  rowOf,
  type Visit,
} from "./scene.ts";

const MANY = 600;
const ROWS = 150;

/** What people do to tasks, dead letters, schedules and consumers, through to the database. */
export function actSuite(at: () => Place): void {
  const visit = (): Promise<Visit> => openVisit(at(), ADMIN);

  describe("dead letters", () => {
    it("are never all of them because what was selected is gone", async () => {
      const { shop } = at();
      await die(shop, 1, "card");
      await die(shop, 1, "fee");
      const { page } = await visit();
      await menu(page, "Dead letters");
      await page.getByLabel("Select the card is void").check();
      const purge = page.getByRole("button", { name: "Purge", exact: true });
      await purge.waitFor();
      await shop.mill.deadLetters.purge({ kind: "card" });
      await page.getByText("what was selected is gone").waitFor();
      expect(await purge.isDisabled()).toBe(true);
      expect(await page.getByRole("button", { name: / all$/ }).count()).toBe(0);
      await page.getByRole("button", { name: "Select none" }).click();
      await page.getByRole("button", { name: "Purge all" }).waitFor();
      await shop.mill.deadLetters.purge({ kind: "fee" });
    });

    it("are redriven by the hundred, and tell how far it is", async () => {
      const { shop } = at();
      await die(shop, MANY, "bulk");
      const { page } = await visit();
      await page.goto(`${shop.url}/dead-letters?kind=bulk`);
      await page.getByRole("button", { name: "Redrive all" }).click();
      await page.getByRole("heading", { name: `Redrive ${MANY} dead letters?` }).waitFor();
      // What is left waits until somebody has seen the bar.
      const seen = gate();
      let calls = 0;
      await page.route("**/v1/dead-letters/redrive", async (route) => {
        calls += 1;
        if (calls > 1) await seen.opened;
        await route.continue();
      });
      // Acts are followed: all that is shown is fetched again, but not what the bar is part of.
      let counts = 0;
      page.on("request", (request) => {
        if (/\/dead-letters\/count/.test(request.url())) counts += 1;
      });
      bank.isOpen = true;
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Redrive" }).click();
      await page.getByRole("progressbar", { name: `500 of ${MANY} done` }).waitFor();
      await dialog.getByRole("button", { name: "Stop here" }).waitFor();
      seen.open();
      await page.getByText("Nothing like that.").waitFor();
      expect({ calls, counts }).toEqual({ calls: 2, counts: 0 });
      expect((await shop.mill.deadLetters.count({ kind: "bulk" }, 1)).count).toBe(0);
    });
  });

  describe("tasks", () => {
    it("are retried after they were cancelled", async () => {
      const { shop } = at();
      const id = await letter(at().shop);
      await shop.mill.tasks.cancel(id);
      const { page } = await visit();
      await page.goto(`${shop.url}/tasks/${id}`);
      await page.getByRole("button", { name: "Retry" }).click();
      await confirm(page, "Retry");
      await page.getByRole("region", { name: "Why" }).getByText("pending").waitFor();
      expect((await shop.mill.tasks.get(id)).state).toBe("pending");
    });

    it("are fetched page by page as somebody scrolls", async () => {
      const { mill, url } = at().shop;
      await mill.queues.ensure("stock");
      const tasks = await mill.enqueueMany(
        "stock",
        Array.from({ length: ROWS }, (_, payload) => ({ payload })),
      );
      onCleanup(() => Promise.all(tasks.map(({ id }) => mill.tasks.cancel(id))));
      const { page } = await visit();
      await page.goto(`${url}/tasks?queue=stock`);
      await page.getByText("100 shown").waitFor();
      const list = page.getByRole("region", { name: "Tasks", exact: true });
      const toEnd = (): Promise<void> => list.evaluate((one) => one.scrollTo(0, one.scrollHeight));
      await toEnd();
      await page.getByText(`${ROWS} shown`).waitFor();
      await toEnd();
      await rowOf(page, tasks[0]?.id ?? "").waitFor();
      expect(await page.getByRole("row").count()).toBeLessThan(100);
    });

    it("stay in sight while another filter is typed and looked for", async () => {
      await letter(at().shop);
      const { page } = await visit();
      await menu(page, "Tasks");
      const rows = page.getByRole("row");
      await rows.nth(1).waitFor();
      const looked = gate();
      const key = "nobody";
      let calls = 0;
      await page.route(/partitionKey=/, async (route) => {
        calls += 1;
        await looked.opened;
        await route.continue();
      });
      const asked = page.waitForRequest(/partitionKey=nobody/);
      await page.getByLabel("Key").focus();
      // Without a rest between letters, however slow the machine is.
      const type = `(one) => document.execCommand("insertText", false, one)`;
      await page.evaluate(`[..."${key}"].forEach(${type})`);
      await asked;
      expect(await rows.count()).toBeGreaterThan(1);
      expect(calls).toBe(1); // Not one for each letter.
      looked.open();
      await page.getByText("There is no such task.").waitFor();
    });

    it("tell of an act that failed after its dialog was closed", async () => {
      const id = await letter(at().shop);
      const { page } = await visit();
      await page.goto(`${at().shop.url}/tasks/${id}`);
      const closed = gate();
      await page.route("**/cancel", async (route) => {
        await closed.opened;
        await route.abort();
      });
      await page.getByRole("button", { name: "Cancel" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("button", { name: "Keep as it is" }).waitFor();
      await dialog.getByRole("button", { name: "Cancel the task" }).click();
      await dialog.getByRole("button", { name: "Close" }).click();
      await page.locator("dialog").waitFor({ state: "detached" });
      closed.open();
      await page.getByText(`Cancel task ${id} failed: The server cannot be reached.`).waitFor();
    });
  });

  describe("schedules", () => {
    it("are run now, paused and resumed", async () => {
      const { mill, url } = at().shop;
      const name = "stock count";
      await mill.schedules.put(name, { cron: "0 3 * * *", queue: "mails" });
      const { page, seen } = await visit();
      await page.goto(`${url}/schedules?name=${encodeURIComponent(name)}`);
      await page.getByText("It never fired.").waitFor();
      await page.getByRole("button", { name: `Run now: ${name}` }).click();
      await confirm(page, "Run now");
      await page.getByText("(by hand)").waitFor();
      const [firing] = await mill.schedules.firings(name);
      await page
        .getByRole("link", { name: firing?.taskId ?? "", exact: true })
        .first()
        .waitFor();
      await page.getByRole("button", { name: `Pause: ${name}` }).click();
      await confirm(page, "Pause");
      const row = page.getByRole("row").filter({ hasText: name });
      await row.getByText("paused").waitFor();
      expect((await mill.schedules.get(name)).pausedAt).toBeDefined();
      await page.getByRole("button", { name: `Resume: ${name}` }).click();
      await confirm(page, "Resume");
      await row.getByText("on", { exact: true }).waitFor();
      expect((await mill.schedules.get(name)).pausedAt).toBeUndefined();
      expect(seen.faults).toEqual([]);
    });
  });

  describe("consumers", () => {
    it("go on after a quarantine, for a reason that the audit keeps", async () => {
      const { mill, url } = at().shop;
      books.hasCustomer = false;
      await mill.append({ type: "order", id: "found" }, [{ type: "OrderLost", data: {} }]);
      const { page, seen } = await visit();
      await page.goto(`${url}/consumers?name=invoices`);
      const row = page.getByRole("row").filter({ hasText: "invoices" });
      await row.getByText("quarantined").waitFor();
      books.hasCustomer = true;
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await confirm(page, "Resume", (dialog) =>
        dialog.getByLabel("Reason (optional)").fill("the customer was found"),
      );
      await row.getByText("running").waitFor();
      await menu(page, "Audit");
      const act = page.getByRole("row").filter({ hasText: "resumed consumer invoices" });
      await act.getByText("the customer was found").waitFor();
      expect(seen.faults).toEqual([]);
    });
  });
}
