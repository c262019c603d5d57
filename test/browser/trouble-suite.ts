import { describe, expect, it } from "vitest";
import { ADMIN } from "../integration/feed/scene.ts";
import { die, letter, live, menu, openVisit, type Place, rowOf, type Visit } from "./scene.ts";

/** What pages say while something is wrong, with the server or with the cluster. */
export function troubleSuite(at: () => Place): void {
  const visit = (): Promise<Visit> => openVisit(at(), ADMIN);

  describe("what is shown", () => {
    it("says that it is old, and is refreshed when the server answers again", async () => {
      const { shop } = at();
      await letter(shop);
      const { page } = await visit();
      await menu(page, "Tasks");
      await page.getByRole("row").nth(1).waitFor();
      const calls = /\/v1\/tasks\?/;
      await page.route(calls, (route) => route.abort());
      const id = await letter(shop);
      await page.getByText("This could not be refreshed: The server cannot be reached.").waitFor();
      expect(await page.getByRole("row").count()).toBeGreaterThan(1);
      await page.unroute(calls);
      await rowOf(page, id).waitFor();
      expect(await page.getByText("could not be refreshed").count()).toBe(0);
    });

    it("goes away with the task that it was about, and so do its acts", async () => {
      const { shop } = at();
      const [id = ""] = await die(shop, 1, "gone");
      const { page } = await visit();
      await page.goto(`${shop.url}/tasks/${id}`);
      const redrive = page.getByRole("button", { name: "Redrive", exact: true });
      await redrive.waitFor();
      await shop.mill.deadLetters.purge({ ids: [id] });
      await page.getByRole("alert").waitFor();
      expect(await redrive.count()).toBe(0);
      expect(await page.getByText("Timeline").count()).toBe(0);
    });
  });

  describe("a server that does not answer", () => {
    it("is asked again at a reload, instead of the person for a token", async () => {
      const { page } = await visit();
      await page.route("**/v1/me", (route) => route.abort());
      await page.reload();
      await page.getByRole("heading", { name: "Tidemill does not answer" }).waitFor();
      await page.getByText("The server cannot be reached.").waitFor();
      expect(await page.getByLabel("Token").count()).toBe(0);
      await page.unroute("**/v1/me");
      await page.getByRole("button", { name: "Try again" }).click();
      await live(page);
    });

    it("is asked although the browser thinks that it is offline", async () => {
      const { page } = await visit();
      await page.context().setOffline(true);
      await menu(page, "Schedules");
      const alert = page.getByRole("alert").filter({ hasText: "The server cannot be reached." });
      await alert.waitFor();
      await page.context().setOffline(false);
      await alert.waitFor({ state: "detached" });
      await page.getByText("Loading…").waitFor({ state: "detached" });
    });
  });

  describe("a gap", () => {
    it("names who holds it, and what to do", async () => {
      const { mill, session: open } = at().shop;
      const { page } = await visit();
      const session = await open();
      await session.query("SET application_name = 'a slow import'");
      const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      await session.query("BEGIN");
      await mill.append({ type: "order", id: "slow" }, [{ type: "OrderPlaced" }], { tx: session });
      await mill.append({ type: "order", id: "quick" }, [{ type: "OrderPlaced" }]);
      const holder = `by pid ${rows[0]?.pid} \\(a slow import, \\w+\\), idle in transaction for`;
      const note = page.getByText(new RegExp(`held at position [\\d,]+ ${holder}`));
      await note.waitFor();
      await page.getByText(`SELECT pg_terminate_backend(${rows[0]?.pid})`).waitFor();
      await session.query("ROLLBACK");
      await note.waitFor({ state: "detached" });
    });
  });
}
