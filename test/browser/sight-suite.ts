import { describe, expect, it } from "vitest";
import { shortId } from "../../dashboard/src/format.ts";
import { ADMIN } from "../integration/feed/scene.ts";
import { gate } from "../integration/tasks/scene.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import {
  die,
  letter,
  live,
  mailbox,
  menu,
  openVisit,
  type Place,
  type Shop,
  type Visit,
} from "./scene.ts";

/** More streams than the desk shows. */
const PARKED = 1_001;
const DIED = "1d1ed1ed-0000-4000-8000-000000000001";

/** As if a consumer had set them aside. */
async function park({ mill }: Shop): Promise<void> {
  const { db } = mill.engine;
  await db.query({
    name: "park_many",
    text: `WITH streams AS (
             INSERT INTO {schema}.parked_streams
                    (consumer_name, stream_type, stream_id, state, error)
             SELECT 'letters_out', 'letter', 'many-' || n, 'parked', 'no such street'
               FROM generate_series(1, ${PARKED}) AS n)
           INSERT INTO {schema}.parked_events
                  (consumer_name, global_position, stream_type, stream_id)
           SELECT 'letters_out', 1000000000 + n, 'letter', 'many-' || n
             FROM generate_series(1, ${PARKED}) AS n`,
  });
  onCleanup(async () => {
    for (const table of ["parked_events", "parked_streams"]) {
      const text = `DELETE FROM {schema}.${table} WHERE stream_id LIKE 'many-%'`;
      await db.query({ name: `unpark_${table}`, text });
    }
  });
}

/** What pages show while nothing is wrong with them, and what they do not ask for. */
export function sightSuite(at: () => Place): void {
  const visit = (): Promise<Visit> => openVisit(at(), ADMIN);

  describe("an idle page", () => {
    it("asks for nothing while it is told of what does not concern it", async () => {
      const { shop } = at();
      await park(shop);
      const [{ page }, other] = [await visit(), await visit()];
      await page.getByRole("heading", { name: "Workers" }).waitFor(); // The state of the cluster.
      await menu(page, "Dead letters");
      await page.getByText("These are the newest 1,000 streams.").waitFor();
      await live(page);
      const asked: string[] = [];
      page.on("request", (request) => {
        const { pathname } = new URL(request.url());
        if (pathname.startsWith("/v1/") && pathname !== "/v1/feed") asked.push(pathname);
      });
      await shop.mill.engine.db.query({
        name: "another_death",
        text: `INSERT INTO {schema}.worker_info
                      (worker_id, status, host, pid, version, capabilities, ended_at)
               VALUES ('${DIED}', 'dead', 'elsewhere', 2, '1', '{}', NOW())`,
      });
      await other.page.getByText(`Worker ${shortId(DIED)} (elsewhere, pid 2) died`).waitFor();
      // What comes behind that is seen: so was that.
      const before = [...asked];
      await die(shop, 1, "idle");
      await page.getByLabel("Select the bank does not answer").waitFor();
      expect(before).toEqual([]);
      expect(new Set(asked)).toEqual(new Set(["/v1/dead-letters/groups"]));
      await shop.mill.deadLetters.purge({ kind: "idle" });
    });
  });

  describe("the overview", () => {
    it("names who leads since which term, and how many tasks each worker runs", async () => {
      const { mill } = at().shop;
      const reading = gate();
      mailbox.read = reading.opened;
      onCleanup(async () => reading.open());
      const task = await mill.enqueue("mails", 1, { kind: "long" });
      const { page } = await visit();
      const { leader, workers } = await mill.status();
      const id = shortId(leader.workerId ?? "nobody");
      await page.getByText(`${id} leads, term ${leader.term}`).waitFor();
      const first = page
        .getByRole("row")
        .filter({ has: page.getByText("leader", { exact: true }) });
      await first.getByText(id, { exact: true }).waitFor();
      const slots = workers.find(({ load }) => typeof load["slots"] === "number")?.load["slots"];
      await page.getByText(`1 of ${String(slots)} running`).waitFor();
      reading.open();
      await task.result();
      await page
        .getByText(`0 of ${String(slots)} running`)
        .first()
        .waitFor();
    });
  });

  describe("the page of a task", () => {
    it("says that its queue is paused, and why", async () => {
      const { shop } = at();
      const id = await letter(shop);
      await shop.mill.queues.pause("letters", { reason: "a flood" });
      onCleanup(() => shop.mill.queues.resume("letters"));
      const { page } = await visit();
      await page.goto(`${shop.url}/tasks/${id}`);
      const why = page.getByRole("region", { name: "Why" });
      await why.getByText(/queue "letters" is paused since .+ \(a flood\); resume it/).waitFor();
    });

    it("shows why its handler put it back", async () => {
      const { mill, url } = at().shop;
      const { id } = await mill.enqueue("mails", 1, { kind: "refused" });
      onCleanup(() => mill.tasks.cancel(id));
      await eventually(async () => expect((await mill.tasks.get(id)).state).toBe("scheduled"));
      const { page, seen } = await visit();
      await page.goto(`${url}/tasks/${id}`);
      const step = page.getByRole("listitem").filter({ hasText: "Attempt 1 was put back" });
      await step.getByText("the mailbox is full <b>").waitFor();
      expect(seen.faults).toEqual([]);
    });
  });
}
