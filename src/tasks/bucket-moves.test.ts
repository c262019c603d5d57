import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BUCKETS } from "../cluster/ring.ts";
import { isEven, ownersFor, planRows } from "./bucket-moves.ts";
import type { BucketOwner, KeySpaceOwners, TaskMember } from "./sql/bucket-owners.ts";

const QUEUES = ["mails", "bills"];

interface Serving {
  readonly queues?: readonly string[];
  readonly idle?: readonly string[];
}

/** A worker in a process. */
const local = (workerId: string, queues: readonly string[] = QUEUES): TaskMember => ({
  workerId,
  queues,
  tenants: new Map(),
});

/** A server, with what it says of tenants. */
const server = (workerId: string, tenants: Readonly<Record<string, Serving>>): TaskMember => ({
  workerId,
  queues: [],
  tenants: new Map(
    Object.entries(tenants).map(([tenant, { queues = QUEUES, idle = [] }]) => {
      return [tenant, { tenant, queues, idle }];
    }),
  ),
});

const spaceOf = (tenant: string, owners: readonly BucketOwner[] = []): KeySpaceOwners => ({
  keySpaceId: 7,
  name: "post",
  tenant,
  queues: QUEUES,
  owners,
});

/** As the rows are after the plan was written. */
function carryOut(space: KeySpaceOwners, members: readonly TaskMember[]): KeySpaceOwners {
  const rows = new Map(space.owners.map((owner) => [owner.worker, owner]));
  for (const { worker, epoch, buckets } of planRows(space, members)) {
    expect(rows.get(worker)?.epoch ?? "0").toBe(epoch);
    if (buckets === undefined) rows.delete(worker);
    else rows.set(worker, { worker, epoch: `${epoch}1`, buckets });
  }
  return { ...space, owners: [...rows.values()] };
}

const ownersOf = (space: KeySpaceOwners): Map<number, string> =>
  new Map(space.owners.flatMap(({ worker, buckets }) => buckets.map((one) => [one, worker])));

const sizesOf = ({ owners, ...space }: KeySpaceOwners): Parameters<typeof isEven>[0] => ({
  ...space,
  sizes: owners.map(({ worker, buckets }) => ({ worker, count: buckets.length })),
});

describe("who may own keys of a tenant", () => {
  it("is any worker in a process, and a server that serves the tenant", () => {
    const members = [local("p"), server("a", { acme: {} }), server("g", { globex: {} })];
    expect(ownersFor(spaceOf("acme"), members)).toEqual(["p", "a"]);
    expect(ownersFor(spaceOf("globex"), members)).toEqual(["p", "g"]);
    expect(ownersFor(spaceOf("initech"), members)).toEqual(["p"]);
  });

  it("is nobody who lacks a queue of the space", () => {
    const members = [local("p", ["mails"]), server("a", { acme: { queues: ["bills"] } })];
    expect(ownersFor(spaceOf("acme"), members)).toEqual([]);
    const both = { ...server("b", { acme: { queues: ["bills"] } }), queues: ["mails"] };
    expect(ownersFor(spaceOf("acme"), [both])).toEqual(["b"]);
  });

  it("is an idle server only while nobody asks", () => {
    const idle = server("idle", { acme: { idle: ["bills"] }, globex: {} });
    expect(ownersFor(spaceOf("acme"), [idle])).toEqual(["idle"]);
    expect(ownersFor(spaceOf("globex"), [idle])).toEqual(["idle"]);
    expect(ownersFor(spaceOf("acme"), [idle, server("a", { acme: {} })])).toEqual(["a"]);
    expect(ownersFor(spaceOf("acme"), [idle, local("p")])).toEqual(["p"]);
  });

  it("is nobody where no queue is left", () => {
    expect(ownersFor({ ...spaceOf("acme"), queues: [] }, [local("p")])).toEqual([]);
  });
});

describe("the plan of a tenant's buckets", () => {
  it("leaves them where they are while their only server is idle", () => {
    const members = [server("a", { acme: {} })];
    const space = carryOut(spaceOf("acme"), members);
    const resting = [server("a", { acme: { idle: QUEUES } }), server("g", { globex: {} })];
    expect(planRows(space, resting)).toEqual([]);
    expect(isEven(sizesOf(space), resting)).toBe(true);
  });

  it("moves all of them when another one asks", () => {
    const space = carryOut(spaceOf("acme"), [server("a", { acme: {} })]);
    const members = [server("a", { acme: { idle: ["mails"] } }), server("b", { acme: {} })];
    const moved = carryOut(space, members);
    expect(moved.owners.map(({ worker, buckets }) => [worker, buckets.length])).toEqual([
      ["b", BUCKETS],
    ]);
  });

  const serving = fc.record({
    queues: fc.constantFrom(QUEUES, QUEUES, ["mails"]),
    idle: fc.constantFrom([], [], ["mails"]),
  });
  const member = fc.oneof(
    fc.constant((id: string) => local(id)),
    fc
      .dictionary(fc.constantFrom("acme", "globex"), serving)
      .map((tenants) => (id: string) => server(id, tenants)),
  );
  const round = fc
    .array(fc.option(member), { minLength: 1, maxLength: 6 })
    .map((slots) => slots.flatMap((make, place) => (make === null ? [] : [make(`w${place}`)])));

  it("is total and even, never gives to others, and moves no more than it must", () => {
    fc.assert(
      fc.property(fc.array(round, { minLength: 1, maxLength: 6 }), (rounds) => {
        let spaces = ["acme", "globex"].map((tenant) => spaceOf(tenant));
        for (const members of rounds) {
          spaces = spaces.map((space) => {
            const may = ownersFor(space, members);
            const after = carryOut(space, members);
            expect(planRows(after, members)).toEqual([]);
            expect(isEven(sizesOf(after), members)).toBe(true);
            expect(isEven(sizesOf(space), members)).toBe(planRows(space, members).length === 0);
            const [before, now] = [ownersOf(space), ownersOf(after)];
            expect(now.size).toBe(may.length === 0 ? 0 : BUCKETS);
            expect(may).toEqual(expect.arrayContaining([...new Set(now.values())]));
            // Nobody who stays gives up more than what exceeds an even share.
            const share = Math.floor(BUCKETS / Math.max(1, may.length));
            for (const worker of may) {
              const had = [...before].filter(([, owner]) => owner === worker).length;
              const kept = [...before].filter(([one, owner]) => {
                return owner === worker && now.get(one) === worker;
              }).length;
              expect(kept).toBeGreaterThanOrEqual(Math.min(had, share));
            }
            return after;
          });
        }
      }),
      { numRuns: 20 },
    );
  });
});
