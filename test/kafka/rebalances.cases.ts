import { describe, expect, it } from "vitest";
import type { KafkaIngest } from "../../src/kafka/index.ts";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { startProcess } from "./processes.ts";
import { type Scene, scene, used } from "./scene.ts";

const PRIORITIES = ["high", "normal", "low"] as const;
/** Messages of each topic; `TIDEMILL_TEST_MESSAGES=8000` for a long run. */
const OF_EACH = Number(process.env["TIDEMILL_TEST_MESSAGES"] ?? 2_500);

const partitionsOf = (ingest: KafkaIngest, topic: string): number[] =>
  ingest
    .status()
    .filter((one) => one.topic === topic)
    .flatMap(({ partitions }) => partitions.map(({ partition }) => partition));

const isThere = async (here: Scene, atLeast: number): Promise<void> => {
  await eventually(
    async () => expect((await here.stored()).numbers).toBeGreaterThanOrEqual(atLeast),
    { everyMs: 5 },
  );
};

describe("while a group divides its partitions anew", () => {
  it("a member reads and stores on, for as long as another one does not answer", async () => {
    const here = await scene(used.broker);
    const topic = `${here.prefix}.jobs.normal`;
    // A group waits for a member that says nothing until its session is over.
    const options = { ...here.options, sessionSeconds: 25 };
    const stuck = await startProcess(here, "ingest", options);
    onCleanup(async () => stuck.wake());
    const member = await here.ingest(options);
    await eventually(() => {
      expect(partitionsOf(member, topic).length).toBeGreaterThan(0);
      expect(partitionsOf(member, topic).length).toBeLessThan(3);
    });
    const held = partitionsOf(member, topic);
    stuck.freeze();
    const joiner = await here.ingest(options);
    const ours = (): number => member.metrics.messages.value({ topic, outcome: "stored" });
    for (const round of [0, 1, 2]) {
      const before = ours();
      await here.produce("normal", 300, round * 300);
      await eventually(() => expect(ours()).toBeGreaterThan(before + 50));
      expect([partitionsOf(member, topic), partitionsOf(joiner, topic)]).toEqual([held, []]);
    }
    stuck.wake();
    await here.expectExactly(900);
    await eventually(() => expect(partitionsOf(joiner, topic)).toHaveLength(1));
  });

  it("nothing is lost or doubled, though the broker restarts under load", async () => {
    const here = await scene(used.broker);
    for (const [at, priority] of PRIORITIES.entries()) {
      await here.produce(priority, OF_EACH, at * OF_EACH);
    }
    const options = { ...here.options, batchMessages: 100 };
    await Promise.all([1, 2].map(() => startProcess(here, "ingest", options)));
    await isThere(here, 500);
    // However fast they are, a third of all is still to come when the broker is back.
    const blocker = await here.database.session();
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM tidemill.kafka_offsets WHERE topic LIKE '%.low' FOR UPDATE");
    await startProcess(here, "ingest", options); // Its partitions are being taken from the others.
    await used.broker.kill("SIGTERM");
    await used.broker.run();
    await blocker.query("ROLLBACK");
    const last = await here.ingest(options);
    await here.expectExactly(3 * OF_EACH, 60_000);
    await eventually(() =>
      expect(last.status().some((one) => one.partitions.length > 0)).toBe(true),
    );
  });
});
