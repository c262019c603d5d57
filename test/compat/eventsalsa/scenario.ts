import { expect } from "vitest";
import { eventually } from "../../support/eventually.ts";
import {
  CONSUMERS,
  type LeaderStrategy,
  type Member,
  MixedCluster,
  ourTraffic,
  salsaTraffic,
} from "../../support/salsa-cluster.ts";
import type { SalsaFamily } from "../../support/salsa-schema.ts";

/**
 * One cluster of both kinds, 1 → 2 → 4 → 3 → 2 members, while both kinds append and roll back. It
 * is led by a salsa member, by one of ours after that one has gone, by a salsa member again and by
 * one of ours again.
 */
export async function runMixedCluster(
  family: SalsaFamily,
  strategy: LeaderStrategy,
): Promise<void> {
  const cluster = await MixedCluster.create(family, strategy);
  const salsa = await salsaTraffic(cluster);

  const a = await cluster.startSalsa();
  await cluster.eventuallyLeads(a);
  await cluster.eventuallyBalanced();

  await cluster.migrate();
  const ours = await ourTraffic(cluster);
  const b = await cluster.startOurs();
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();

  const c = await cluster.startSalsa({ stands: false });
  const d = await cluster.startOurs();
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();
  await cluster.eventuallyLeads(a);
  await expectNothingWritten(cluster, () => cluster.eventuallyLooked(a));
  expect(await leadersWhoWrote(cluster, 0)).toEqual(["salsa"]);

  // The salsa leader goes: one of ours leads, and writes what a salsa leader would have.
  let { length } = await cluster.readWrites();
  await cluster.stop(a);
  const first = await cluster.eventuallyLeads(b, d);
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();
  expect(await leadersWhoWrote(cluster, length)).toEqual(["tidemill"]);

  // The lead changes hands and nobody comes or goes: there is nothing to write.
  await expectNothingWritten(cluster, async () => {
    await cluster.eventuallyLooked(first);
    await cluster.handLeadTo(c);
    await cluster.eventuallyLeads(c);
    await cluster.eventuallyLooked(c);
  });

  ({ length } = await cluster.readWrites());
  await cluster.stop(first);
  await cluster.eventuallyBalanced();
  await cluster.eventuallyServed();
  expect(await leadersWhoWrote(cluster, length)).toEqual(["salsa"]);

  await expectNothingWritten(cluster, async () => {
    c.standDown();
    const last = await cluster.eventuallyLeads(b, d);
    await cluster.eventuallyLooked(last);
  });
  expect([...cluster.members].map(({ kind }) => kind).sort()).toEqual(["salsa", "tidemill"]);

  await Promise.all([salsa.stop(), ours.stop()]);
  await eventually(() => expectEachOnceInOrder(cluster), { everyMs: 100 });
  expect(await whoCrossedGaps(cluster, [a, c])).toEqual(["salsa", "tidemill"]);
  for (const member of [a, b, c, d]) expect(member.failure).toBeUndefined();
}

/** What each consumer handled, in its order, is what is visible, and only its owner did it. */
export async function expectEachOnceInOrder({ pool, family }: MixedCluster): Promise<void> {
  const events = await pool.query<{ position: string; type: string }>(
    `SELECT global_position AS position, ${family}_type AS type FROM public.events ORDER BY 1`,
  );
  const { rows } = await pool.query<{ consumer: string; positions: string[] }>(
    "SELECT consumer, array_agg(position::text ORDER BY id) AS positions FROM handled GROUP BY 1",
  );
  const handled = new Map(rows.map((row) => [row.consumer, row.positions]));
  for (const { name, types } of CONSUMERS) {
    const own = events.rows.filter(({ type }) => types === undefined || types.includes(type));
    expect(handled.get(name), name).toEqual(own.map(({ position }) => position));
  }
  const strangers = await pool.query("SELECT * FROM handled WHERE worker IS DISTINCT FROM owner");
  expect(strangers.rows).toEqual([]);
}

/** Kinds of member that gave a consumer to somebody after the first `count` writes. */
async function leadersWhoWrote(cluster: MixedCluster, count: number): Promise<string[]> {
  const writes = (await cluster.readWrites()).slice(count);
  return [...new Set(writes.filter(({ after }) => after !== null).map(({ writer }) => writer))];
}

async function expectNothingWritten(
  cluster: MixedCluster,
  during: () => Promise<unknown>,
): Promise<void> {
  const before = await cluster.readWrites();
  await during();
  expect((await cluster.readWrites()).slice(before.length)).toEqual([]);
}

/** Kinds of member with a record of a position that is missing indeed. */
async function whoCrossedGaps({ pool }: MixedCluster, salsa: Member[]): Promise<string[]> {
  const { rows } = await pool.query<{ worker: string }>(
    `SELECT DISTINCT worker_id AS worker FROM public.consumer_gap_skips
      WHERE NOT EXISTS (SELECT FROM public.events WHERE global_position = gap_position)
        AND gap_position <= skip_to_position AND first_seen_at <= created_at`,
  );
  const isSalsa = (worker: string): boolean => salsa.some(({ id }) => id === worker);
  return [...new Set(rows.map((row) => (isSalsa(row.worker) ? "salsa" : "tidemill")))].sort();
}
