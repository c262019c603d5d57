import { describe, expect, it } from "vitest";
import type { TestDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { scene, used } from "./scene.ts";

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

describe("dead messages", () => {
  it("are forgotten by the ingest of their source only, and become one task each", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    await bury(here.database, "ours", 31);
    await bury(here.database, "theirs", 31);
    const kept = await bury(here.database, "ours", 29);
    const ours = await here.ingest({ source: "ours" });
    await eventually(async () => {
      expect((await ours.deadMessages.list()).map(({ id }) => id)).toEqual([kept]);
    });
    const { rows } = await here.database.pool.query(
      "SELECT FROM tidemill.kafka_dead_messages WHERE source = 'theirs'",
    );
    expect(rows).toHaveLength(1);
    // However often they are named.
    await here.mill.queues.ensure("jobs");
    const other = await bury(here.database, "ours", 0);
    const made = await ours.deadMessages.redrive([kept, other, kept, `0${other}`]);
    expect(made).toHaveLength(2);
    expect((await here.stored()).tasks).toBe(2);
  });

  it("may have a position that was buried before, which stops nothing", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const topic = `${here.prefix}.jobs.normal`;
    const garbage = { topic, key: undefined, value: Buffer.from("no job"), headers: [] };
    await here.client.publish([garbage]);
    const first = await here.ingest();
    await eventually(async () => expect(await first.deadMessages.list()).toHaveLength(1));
    await first.stop();
    await here.database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = 0");
    await here.produce("normal", 1);
    const again = await here.ingest();
    await here.expectExactly(1);
    expect(await again.deadMessages.list()).toHaveLength(2);
  });
});
