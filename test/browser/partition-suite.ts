import { describe, expect, it } from "vitest";
import { consumer } from "../../src/index.ts";
import { ADMIN } from "../integration/feed/scene.ts";
import { BRISK } from "../integration/tasks/scene.ts";
import { onCleanup } from "../support/database.ts";
import { confirm, openVisit, type Place } from "./scene.ts";

/** A consumer with partitions, as one thing that may be opened. */
export function partitionSuite(at: () => Place): void {
  describe("a consumer with partitions", () => {
    it("is one row with all that is behind, and is acted on as a whole", async () => {
      const { mill, url } = at().shop;
      const shipments = consumer("shipments", { partitions: 3, handle: () => {} });
      const worker = await mill.startWorker({ ...BRISK, consumers: [shipments] });
      onCleanup(async () => {
        await worker.stop();
        await mill.consumers.retire("shipments");
      });
      const { page, seen } = await openVisit(at(), ADMIN);
      await page.goto(`${url}/consumers?name=shipments`);
      const rowNamed = (name: string) =>
        page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
      await rowNamed("shipments").getByText("running").waitFor();
      expect(await rowNamed("shipments/1").count()).toBe(0);
      await page.getByRole("button", { name: "Partitions of shipments" }).click();
      for (const index of [0, 1, 2]) {
        await rowNamed(`shipments/${index}`).getByText("running").waitFor();
      }
      await page.getByRole("button", { name: "Pause", exact: true }).click();
      await confirm(page, "Pause", (dialog) => dialog.getByLabel(/^Reason/).fill("a strike"));
      await rowNamed("shipments").getByText("3 paused").waitFor();
      for (let count = 0; count < 4; count += 1) {
        await mill.append({ type: "box", id: String(count) }, [{ type: "BoxPacked" }]);
      }
      // Each partition passes every position: three times four are behind.
      await rowNamed("shipments").getByRole("cell", { name: "12", exact: true }).waitFor();
      await rowNamed("shipments").getByText("stands still").waitFor();
      await mill.consumers.resume("shipments/2");
      await rowNamed("shipments").getByText("2 paused").waitFor();
      await page.getByRole("button", { name: "Resume", exact: true }).click();
      await confirm(page, "Resume");
      await rowNamed("shipments").getByText("caught up").waitFor();
      await page.getByRole("button", { name: "Rewind" }).click();
      await confirm(page, "Rewind", async (dialog) => {
        await dialog.getByText(/All of its partitions are rewound/).waitFor();
        await dialog.getByLabel("Reason").fill("a new column");
        await dialog.getByLabel("To position").fill("0");
      });
      await page.getByText("shipments was rewound.").waitFor();
      await page.getByRole("button", { name: "Partitions of shipments" }).click();
      await rowNamed("shipments/1").waitFor({ state: "detached" });
      // A link to one partition opens it.
      await page.goto(`${url}/consumers?name=shipments%2F1`);
      await rowNamed("shipments/1").waitFor();
      await page.getByRole("heading", { name: "shipments/1", exact: true }).waitFor();
      expect(seen.faults).toEqual([]);
    });
  });
}
