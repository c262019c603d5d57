import { describe, expect, it } from "vitest";
import { eventually } from "../support/eventually.ts";
import { type Scene, scene, used } from "./scene.ts";
import { removeBefore } from "./topics.ts";

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, place) => from + place);

interface Read {
  readonly topic: string;
  readonly only: { readonly topics: [{ readonly topic: string }]; readonly prefix: never };
  readonly numbers: () => Promise<number[]>;
  readonly nextOffset: () => Promise<string | undefined>;
  readonly setOffset: (offset: number) => Promise<unknown>;
}

/** One topic of one partition. */
function reading({ prefix, database }: Scene): Read {
  const topic = `${prefix}.jobs.normal`;
  return {
    topic,
    only: { topics: [{ topic }], prefix: undefined as never },
    async numbers() {
      const { rows } = await database.pool.query<{ n: number }>(
        "SELECT (payload::jsonb->>'n')::int AS n FROM tidemill.live_tasks ORDER BY 1",
      );
      return rows.map(({ n }) => n);
    },
    async nextOffset() {
      const { rows } = await database.pool.query<{ next_offset: string }>(
        "SELECT next_offset FROM tidemill.kafka_offsets",
      );
      return rows[0]?.next_offset;
    },
    setOffset: (offset) =>
      database.pool.query("UPDATE tidemill.kafka_offsets SET next_offset = $1", [offset]),
  };
}

/** Offsets up to this one cannot be stored, until what it gives is called. */
async function refuseOffsets({ database }: Scene, upTo: number): Promise<() => Promise<void>> {
  await database.pool.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON tidemill.kafka_offsets
      FOR EACH ROW WHEN (NEW.next_offset <= ${upTo}) EXECUTE FUNCTION refuse()`);
  return async () =>
    void (await database.pool.query("DROP TRIGGER refuse ON tidemill.kafka_offsets"));
}

describe("onDataLoss: continue", () => {
  it("stores what was fetched before the log lost what follows it", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { topic, only, numbers, nextOffset } = reading(here);
    await here.produce("normal", 1);
    // What is full fetches nothing more, until something is stored.
    const options = { ...only, onDataLoss: "continue", bufferMessages: 19 } as const;
    const ingest = await here.ingest(options);
    await eventually(async () => expect(await nextOffset()).toBe("1"));
    const release = await refuseOffsets(here, 20);
    await here.produce("normal", 19, 1);
    await eventually(() => expect(ingest.status()[0]?.buffered).toBe(19));
    await here.produce("normal", 20, 20);
    await removeBefore(here, topic, 30n);
    await release();
    await eventually(async () =>
      expect(await numbers()).toEqual([...range(0, 20), ...range(30, 40)]),
    );
    expect(ingest.metrics.skipped.value({ topic })).toBe(10);
  });

  it("goes on at the end of a log that is shorter than what was read", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { topic, only, numbers, nextOffset, setOffset } = reading(here);
    await here.produce("normal", 15);
    const first = await here.ingest(only);
    await eventually(async () => expect(await nextOffset()).toBe("15"));
    await first.stop();
    await setOffset(20); // As if five more had been there, and were lost.
    const ingest = await here.ingest({ ...only, onDataLoss: "continue" });
    await eventually(async () => expect(await nextOffset()).toBe("15"));
    await here.produce("normal", 1, 100);
    await eventually(async () => expect(await numbers()).toEqual([...range(0, 15), 100]));
    expect(ingest.metrics.skipped.value({ topic })).toBe(0);
  });
});

describe("onDataLoss: stop", () => {
  it("shows the partition that is not read, and goes on when its offset was moved", async () => {
    const here = await scene(used.broker, { partitions: 1 });
    const { topic, only, numbers, nextOffset, setOffset } = reading(here);
    await here.produce("normal", 20);
    await removeBefore(here, topic, 5n);
    const first = await here.ingest(only);
    await eventually(async () => expect(await nextOffset()).toBe("20"));
    await first.stop();
    await setOffset(2);
    const { metrics: gauges } = await here.ingest({ ...only, onDataLoss: "stop" });
    await eventually(() => expect(gauges.stopped.value({ topic })).toBe(1));
    await here.produce("normal", 2, 20);
    await eventually(() => expect(gauges.lag.value({ topic, partition: "0" })).toBe(20));
    await setOffset(20);
    await eventually(async () => expect(await numbers()).toEqual(range(5, 22)));
    expect(gauges.stopped.value({ topic })).toBe(0);
  });
});
