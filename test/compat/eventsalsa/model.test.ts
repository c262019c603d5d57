import { describe, expect, it } from "vitest";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { salsaAppend } from "../../support/salsa-appender.ts";
import { skipTarget } from "../../support/salsa-consumer.ts";
import { SalsaMember } from "../../support/salsa-member.ts";
import { HANDLED_DDL, SALSA_WORKER_DDL, salsaStoreDdl } from "../../support/salsa-schema.ts";

/* The model itself against the contract's own examples: a wrong model would prove nothing. */

describe("where the model's skip of a gap ends", () => {
  it.each<[bigint, bigint[], number, bigint]>([
    [1n, [2n, 3n, 4n, 5n, 6n], 1, 5n],
    [1n, [2n, 3n], 8, 2n],
    [1n, [2n, 4n, 5n, 6n], 1, 2n],
    [100n, [102n, 103n, 104n], 1, 103n],
    [100n, [103n, 104n], 8, 103n],
  ])("gap %s before %s with lag %i: %s", (gap, positions, lag, target) => {
    expect(skipTarget(gap, positions, lag)).toBe(target);
  });
});

describe("the model alone", () => {
  it("skips a stale gap up to the safe harbor and records it, as the source does", async () => {
    const database = await testDatabase({ migrated: false });
    const { pool, url } = database;
    await pool.query(salsaStoreDdl("aggregate") + SALSA_WORKER_DDL + HANDLED_DDL);
    const appender = await database.session();
    const append = { streamType: "Order", streamId: "1", count: 1 };
    const [gap] = await salsaAppend(appender, "aggregate", { ...append, end: "rollback" });
    const later: bigint[] = [];
    for (let turn = 0; turn < 4; turn += 1) {
      later.push(...(await salsaAppend(appender, "aggregate", append)));
    }
    const member = await SalsaMember.start(url, [{ name: "hasty" }], {
      family: "aggregate",
      batchSize: 50,
      batchPauseMs: 10,
      pollMs: 50,
      maxPollMs: 200,
      dispatcherMs: 50,
      heartbeatMs: 100,
      heartbeatTimeoutMs: 2_000,
      rebalanceMs: 100,
      syncFloorMs: 100,
      staleGapMs: 250,
      harborLag: 1,
    });
    onCleanup(() => member.stop());
    await eventually(async () => {
      const { rows } = await pool.query("SELECT last_position FROM consumer_checkpoints");
      expect(rows).toEqual([{ last_position: String(later[3]) }]);
    });
    const skips = await pool.query(
      `SELECT worker_id, gap_position, skip_to_position, highest_visible_position,
              created_at - first_seen_at >= INTERVAL '250 ms' AS is_old
         FROM consumer_gap_skips`,
    );
    expect(skips.rows).toEqual([
      {
        worker_id: member.id,
        gap_position: String(gap),
        skip_to_position: String(later[2]),
        highest_visible_position: String(later[3]),
        is_old: true,
      },
    ]);
    const handled = await pool.query("SELECT position FROM handled ORDER BY id");
    expect(handled.rows.map((row) => BigInt(row.position as string))).toEqual(later);
    await member.stop();
    expect([member.failure, member.problems]).toEqual([undefined, []]);
    const left = await pool.query(
      `SELECT (SELECT count(*)::int FROM worker_nodes) AS nodes, worker_id
         FROM consumer_assignments`,
    );
    expect(left.rows).toEqual([{ nodes: 0, worker_id: null }]);
  });
});
