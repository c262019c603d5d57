import { describe, expect, it } from "vitest";
import { settle } from "../../../test/support/manual-clock.ts";
import { systemClock } from "../../base/clock.ts";
import { CommitUnknownError, UnavailableError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import type { EncodedTask } from "../../tasks/encode.ts";
import type { Bulk, StoreResult } from "../../tasks/store.ts";
import { ServerMetrics } from "../metrics.ts";
import { CreateLine } from "./create-line.ts";
import type { CreateOutcome } from "./open-create.ts";

const task = (payload: string, isSerial = false): EncodedTask => ({
  payload,
  key: "",
  bucket: undefined,
  isSerial,
  idempotency: undefined,
  shape: { lane: 1, queue: "mails", tenant: "", priority: 5, max_attempts: 5 },
});

const refusal = (code: string): Error => Object.assign(new Error("no"), { code });

type Store = (payloads: readonly string[]) => Error | undefined;

/** A line over a store that answers as told, and what it was asked to store. */
function lineOver(store: Store) {
  const commits: string[] = [];
  const outcomes = new Map<string, CreateOutcome>();
  const intake = {
    store: async (bulks: readonly Bulk[]): Promise<StoreResult[][]> => {
      const payloads = bulks.flatMap(({ tasks }) => tasks.map((one) => one.payload));
      commits.push(payloads.join(" "));
      await settle();
      const error = store(payloads);
      if (error !== undefined) throw error;
      return bulks.map(({ tasks }) => tasks.map((one) => `id ${one.payload}`));
    },
  };
  const limits = { tasksMax: 1_000, bytesMax: 1_000_000 };
  const shared = { clock: systemClock, logger: silentLogger, metrics: new ServerMetrics() };
  const line = new CreateLine(intake, { ...shared, limits });
  const stop = new AbortController();
  const running = line.run(stop.signal);
  const submit = (tenant: string, payloads: string, isAtomic = false, source: object = {}): void =>
    line.submit({
      tenant,
      source,
      tasks: payloads.split(" ").map((one) => task(one, one.startsWith("serial"))),
      bytes: 10,
      isAtomic,
      settle: (outcome) => {
        expect(outcomes.has(payloads)).toBe(false);
        outcomes.set(payloads, outcome);
      },
    });
  const ended = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  /** Ids, or the code of what went wrong. */
  const heard = (payloads: string): unknown => {
    const outcome = outcomes.get(payloads);
    if (outcome?.kind !== "stored") return outcome?.kind;
    return outcome.results.map((one) => (typeof one === "string" ? one : one.code)).join(",");
  };
  const answered = async (count: number): Promise<void> => {
    while (outcomes.size < count) await settle();
  };
  return { line, commits, submit, heard, answered, ended };
}

describe("the line of creates", () => {
  it("commits at once when idle, and gathers while a commit is on its way", async () => {
    const { submit, commits, heard, answered, ended } = lineOver(() => undefined);
    await settle();
    submit("a", "1");
    await settle();
    for (const one of ["2", "3", "4"]) submit("a", one);
    await answered(4);
    expect(commits).toEqual(["1", "2 3 4"]);
    expect(heard("3")).toBe("id 3");
    await ended();
  });

  it("finds the culprit of a refused transaction, and stores everybody else's", async () => {
    const { submit, commits, heard, answered, ended } = lineOver((payloads) =>
      payloads.includes("bad") ? refusal("P0001") : undefined,
    );
    for (const one of ["a1", "a2 bad a3", "a4"]) submit("a", one);
    submit("b", "b1 b2");
    await answered(4);
    expect(heard("b1 b2")).toBe("id b1,id b2");
    expect(heard("a1")).toBe("id a1");
    expect(heard("a4")).toBe("id a4");
    expect(heard("a2 bad a3")).toBe("id a2,TM_INVALID_INPUT,id a3");
    expect(commits.length).toBeLessThan(12);
    await ended();
  });

  it("says what is stored of a divided create when the database goes away", async () => {
    let commits = 0;
    const { submit, heard, answered, ended } = lineOver(() => {
      commits += 1;
      if (commits === 1) return refusal("23514");
      return commits === 2 ? undefined : new UnavailableError("away");
    });
    submit("a", "1 2 3 4");
    await answered(1);
    expect(heard("1 2 3 4")).toBe("id 1,id 2,TM_UNAVAILABLE,TM_UNAVAILABLE");
    await ended();
  });

  it("says what is stored of a divided create when it stops", async () => {
    const stopping: (() => Promise<void>)[] = [];
    let commits = 0;
    const { submit, heard, answered, ended } = lineOver(() => {
      commits += 1;
      if (commits === 1) return refusal("23514");
      void stopping[0]?.();
      return undefined;
    });
    stopping.push(ended);
    submit("a", "1 2 3 4");
    await answered(1);
    expect(heard("1 2 3 4")).toBe("id 1,id 2,TM_UNAVAILABLE,TM_UNAVAILABLE");
    await ended();
  });

  it("refuses an atomic create as a whole", async () => {
    const { submit, heard, answered, ended } = lineOver((payloads) =>
      payloads.includes("bad") ? new RangeError("Invalid string length") : undefined,
    );
    submit("a", "good bad", true);
    submit("a", "fine");
    await answered(2);
    expect(heard("good bad")).toBe("refused");
    expect(heard("fine")).toBe("id fine");
    await ended();
  });

  it("lets others in between while it looks for culprits", async () => {
    const { submit, commits, answered, ended } = lineOver((payloads) =>
      payloads.some((one) => one.startsWith("bad")) ? refusal("23514") : undefined,
    );
    for (let n = 0; n < 8; n += 1) submit("a", `bad${n}`);
    await settle();
    submit("b", "b1");
    await answered(9);
    const at = commits.findIndex((one) => one.includes("b1"));
    expect(at).toBeLessThan(4);
    await ended();
  });

  it("divides nothing when the database is away", async () => {
    const { submit, commits, heard, answered, ended } = lineOver(
      () => new UnavailableError("gone", { cause: refusal("57P01") }),
    );
    for (const one of ["1", "2", "3 4 5"]) submit(one === "2" ? "b" : "a", one);
    await answered(3);
    expect(commits).toHaveLength(1);
    expect(["1", "2", "3 4 5"].map(heard)).toEqual(["refused", "refused", "refused"]);
    await ended();
  });

  it("says of what was not answered that it is not known", async () => {
    const { submit, commits, heard, answered, ended } = lineOver(
      () => new CommitUnknownError("no answer", { cause: refusal("57P01") }),
    );
    submit("a", "1");
    submit("b", "2");
    await answered(2);
    expect(commits).toHaveLength(1);
    expect([heard("1"), heard("2")]).toEqual(["unknown", "unknown"]);
    await ended();
  });

  it("refuses those who wait for a lock of somebody else's, and nobody else", async () => {
    const { submit, commits, heard, answered, ended } = lineOver((payloads) =>
      payloads.includes("serial")
        ? new UnavailableError("lock", { cause: refusal("55P03") })
        : undefined,
    );
    for (const one of ["1", "serial", "2"]) submit("a", one);
    submit("b", "3");
    submit("b", "serial-b");
    await answered(5);
    expect(heard("serial")).toBe("TM_UNAVAILABLE");
    expect(heard("serial-b")).toBe("id serial-b");
    expect(["1", "2", "3"].map(heard)).toEqual(["id 1", "id 2", "id 3"]);
    expect(commits.length).toBeLessThan(6);
    await ended();
  });

  it("does not store what nobody waits for, and refuses what comes after its end", async () => {
    const { line, submit, commits, heard, answered, ended } = lineOver(() => undefined);
    const gone = {};
    submit("a", "gone", false, gone);
    submit("a", "there");
    line.forget("a", gone);
    await answered(2);
    expect(commits).toEqual(["there"]);
    await ended();
    submit("a", "late");
    expect([heard("gone"), heard("late")]).toEqual(["refused", "refused"]);
  });
});
