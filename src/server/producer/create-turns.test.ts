import { describe, expect, it } from "vitest";
import type { EncodedTask } from "../../tasks/encode.ts";
import { CreateTurns } from "./create-turns.ts";
import { type Create, divide, type Part } from "./open-create.ts";

const LIMITS = { tasksMax: 4, bytesMax: 100 };
const ONE = {};
const OTHER = {};

const task = (name: string, key?: string): EncodedTask => ({
  payload: name,
  key: "",
  bucket: undefined,
  isSerial: false,
  idempotency: key === undefined ? undefined : { key, seconds: 60, given: "" },
  shape: { lane: 1, queue: "mails", tenant: "", priority: 5, max_attempts: 5 },
});

const create = (tenant: string, names: string, options: Partial<Create> = {}): Create => ({
  tenant,
  source: ONE,
  tasks: names.split(" ").map((name) => task(name)),
  bytes: 10,
  isAtomic: false,
  settle: () => {},
  ...options,
});

const namesOf = (parts: readonly Part[]): string =>
  parts
    .flatMap(({ open, from, to }) => open.create.tasks.slice(from, to))
    .map(({ payload }) => payload)
    .join(" ");

function turnsOf(...creates: Create[]): CreateTurns {
  const turns = new CreateTurns();
  for (const one of creates) turns.add(one);
  return turns;
}

const take = (turns: CreateTurns, limits = LIMITS): string => namesOf(turns.take(limits));

describe("turns of creates", () => {
  it("take one of each tenant, until the transaction is full", () => {
    const flood = Array.from({ length: 9 }, (_, n) => create("a", `a${n}`));
    const turns = turnsOf(...flood, create("b", "b0"), create("c", "c0"));
    expect(take(turns)).toBe("a0 b0 c0 a1");
    expect(take(turns)).toBe("a2 a3 a4 a5");
    turns.add(create("b", "b1"));
    expect(take(turns)).toBe("a6 b1 a7 a8");
    expect(take(turns)).toBe("");
    expect(turns.isEmpty).toBe(true);
  });

  it("take turns among the sources of a tenant, each in its order", () => {
    const turns = turnsOf(
      ...["x0", "x1", "x2"].map((name) => create("a", name)),
      ...["y0", "y1"].map((name) => create("a", name, { source: OTHER })),
    );
    expect(take(turns)).toBe("x0 y0 x1 y1");
    expect(take(turns)).toBe("x2");
  });

  it("are cut by bytes, and let a create in alone that has more", () => {
    const turns = turnsOf(
      create("a", "large", { bytes: 500 }),
      create("b", "b0", { bytes: 60 }),
      create("c", "c0", { bytes: 60 }),
    );
    expect(take(turns)).toBe("large");
    expect(take(turns)).toBe("b0");
    expect(take(turns)).toBe("c0");
  });

  it("leave a second create with an idempotency key for the next transaction", () => {
    const keyed = (tenant: string, name: string, key: string): Create =>
      create(tenant, name, { tasks: [task(name, key)], source: {} });
    const turns = turnsOf(
      keyed("a", "first", "k"),
      keyed("a", "again", "k"),
      keyed("b", "other", "k"),
    );
    expect(take(turns)).toBe("first other");
    expect(take(turns)).toBe("again");
  });

  it("commit what was put back alone and in order, and others in between", () => {
    const turns = turnsOf(create("a", "a0"), create("a", "a1"), create("b", "b0"));
    const parts = turns.take(LIMITS);
    turns.putBack(divide(parts) ?? []);
    turns.add(create("a", "a2"));
    turns.add(create("c", "c0"));
    expect(take(turns)).toBe("a0 a1");
    expect(take(turns)).toBe("b0");
    expect(take(turns)).toBe("c0 a2");
  });

  it("forget a source, also what was put back of it", () => {
    const turns = turnsOf(create("a", "x"), create("a", "y", { source: OTHER }));
    turns.putBack(divide(turns.take(LIMITS)) ?? []);
    turns.add(create("a", "z"));
    const gone = turns.remove("a", ONE);
    expect(new Set(gone.map((open) => open.create.tasks[0]?.payload))).toEqual(new Set(["x", "z"]));
    for (const open of gone) open.settle({ kind: "refused", error: new Error("gone") });
    expect(take(turns)).toBe("y");
    expect(take(turns)).toBe("");
  });
});

describe("a refused transaction", () => {
  const dividing = (turns: CreateTurns, limits = { tasksMax: 99, bytesMax: 999 }): string[] =>
    (divide(turns.take(limits)) ?? []).map(namesOf);

  it("is divided by tenants first", () => {
    const turns = turnsOf(create("a", "a0"), create("b", "b0 b1"), create("a", "a1"));
    expect(dividing(turns)).toEqual(["a0 a1", "b0 b1"]);
  });

  it("is then divided by creates, and a create by its tasks unless it is atomic", () => {
    expect(dividing(turnsOf(create("a", "1 2"), create("a", "3"), create("a", "4")))).toEqual([
      "1 2 3",
      "4",
    ]);
    expect(dividing(turnsOf(create("a", "1 2 3")))).toEqual(["1 2", "3"]);
    expect(dividing(turnsOf(create("a", "1 2 3", { isAtomic: true })))).toEqual([]);
    expect(dividing(turnsOf(create("a", "1")))).toEqual([]);
  });
});
