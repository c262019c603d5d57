import { describe, expect, it } from "vitest";
import { KafkaIngest } from "../../../src/kafka/index.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { KafkaLog } from "../../support/kafka-log.ts";

const JOB = JSON.stringify({ payload: { n: 1 } });

/** A message of partition 0 that was buried so many days ago. */
async function bury({ pool }: TestDatabase, source: string, days: number): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `INSERT INTO tidemill.kafka_dead_messages
            (source, topic_id, "partition", message_offset, topic, reason, value, headers,
             created_at)
     VALUES ($1, gen_random_uuid(), 0, 0, 'jobs', 'a test', convert_to($3, 'UTF8'), '[]',
             NOW() - make_interval(days => $2))
     RETURNING id::text`,
    [source, days, JOB],
  );
  return rows[0]?.id ?? "";
}

async function ingestOf(database: TestDatabase, source: string): Promise<KafkaIngest> {
  const mill = await database.connect();
  const ingest = new KafkaIngest(mill, new KafkaLog(), { source, prefix: "p", queue: "jobs" });
  onCleanup(() => ingest.stop());
  return ingest;
}

const countTasks = async ({ pool }: TestDatabase): Promise<number> => {
  const { rows } = await pool.query<{ count: number }>(
    "SELECT count(*)::int FROM tidemill.live_tasks",
  );
  return rows[0]?.count ?? -1;
};

describe("dead messages", () => {
  it("are forgotten by the ingest of their source only", async () => {
    const database = await testDatabase();
    await bury(database, "ours", 31);
    await bury(database, "theirs", 31);
    const kept = await bury(database, "ours", 29);
    const [ours, theirs] = [await ingestOf(database, "ours"), await ingestOf(database, "theirs")];
    await ours.start();
    await eventually(async () => {
      expect((await ours.deadMessages.list()).map(({ id }) => id)).toEqual([kept]);
    });
    expect(await theirs.deadMessages.list()).toHaveLength(1);
  });

  it("become one task each, however often they are named", async () => {
    const database = await testDatabase();
    await (await database.connect()).queues.ensure("jobs");
    const ids = [await bury(database, "ours", 0), await bury(database, "ours", 0)];
    const { deadMessages } = await ingestOf(database, "ours");
    const made = await deadMessages.redrive([...ids, ids[0] ?? "", `0${ids[1]}`]);
    expect(made).toHaveLength(2);
    expect(await countTasks(database)).toBe(2);
  });

  it("may have a position that was buried before, which stops nothing", async () => {
    const database = await testDatabase();
    const log = new KafkaLog();
    log.records.push("no job");
    const start = async (): Promise<KafkaIngest> => {
      const topics = [{ topic: "jobs", priority: "normal" as const }];
      const mill = await database.connect();
      const ingest = new KafkaIngest(mill, log, { topics, queue: "jobs" });
      onCleanup(() => ingest.stop());
      await ingest.start();
      return ingest;
    };
    const first = await start();
    await eventually(async () => expect(await first.deadMessages.list()).toHaveLength(1));
    await first.stop();
    await database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = 0");
    log.write(1);
    const again = await start();
    await eventually(async () => expect(await countTasks(database)).toBe(1), { timeoutMs: 5_000 });
    expect(await again.deadMessages.list()).toHaveLength(2);
  });
});
