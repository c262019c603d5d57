import fc from "fast-check";
import { expect, it } from "vitest";
import { eventually } from "../support/eventually.ts";
import { falseGapsIn, foreignInsert } from "../support/handled.ts";
import { LogStage, SESSIONS } from "./log-stage.ts";
import { assertModel, timeoutOf } from "./replay.ts";

/*
 * A consumer against the list of what was committed. Sessions append, undo, prepare, commit and
 * roll back in an order that chance decides, and the consumer looks at the log in between. It must
 * handle what was committed, in the order of positions, each event once, and nothing beyond a
 * position whose transaction may yet commit.
 */

interface OpenTransaction {
  /** Positions that exist if it commits. */
  live: number[];
  /** How many were live at each savepoint. */
  marks: number[];
}

interface Model {
  /** The log's last position before the run. */
  readonly base: number;
  committed: number[];
  readonly open: (OpenTransaction | undefined)[];
  readonly prepared: Map<string, number[]>;
  prepares: number;
  streams: number;
}

type Step = fc.AsyncCommand<Model, LogStage>;
type Given = { readonly model: Model; readonly stage: LogStage };

const ascending = (positions: readonly number[]): number[] => positions.toSorted((a, b) => a - b);

/** To a stream of its own: nobody waits for the head of another's. */
async function append({ model, stage }: Given, count: number, session?: number): Promise<number[]> {
  model.streams += 1;
  const stream = { type: "Thing", id: `${model.base}-${model.streams}` };
  const events = Array.from({ length: count }, () => ({ type: "Done" }));
  const tx = session === undefined ? undefined : stage.sessions[session];
  const { positions } = await stage.mill.append(stream, events, tx === undefined ? {} : { tx });
  return positions.map(Number);
}

/** A command of one session, when its transaction is open or not, as told. */
function step(
  name: string,
  session: number,
  isOpen: boolean,
  act: (given: Given, transaction: OpenTransaction) => Promise<void>,
): Step {
  return {
    check: (model) => (model.open[session] !== undefined) === isOpen,
    run: (model, stage) => act({ model, stage }, model.open[session] ?? { live: [], marks: [] }),
    toString: () => `${session}: ${name}`,
  };
}

const begin = (session: number, drawsId: boolean): Step =>
  step(drawsId ? "begin with an id" : "begin", session, false, async ({ model, stage }) => {
    await stage.sessions[session]?.query("BEGIN");
    if (drawsId) await stage.sessions[session]?.query("SELECT pg_current_xact_id()");
    model.open[session] = { live: [], marks: [] };
  });

const appendIn = (session: number, count: number): Step =>
  step(`append ${count}`, session, true, async (given, transaction) => {
    transaction.live.push(...(await append(given, count, session)));
  });

const insertIn = (session: number): Step =>
  step("insert as a stranger", session, true, async ({ stage }, transaction) => {
    transaction.live.push(await foreignInsert(stage.sessions[session]!, "Foreign"));
  });

const savepoint = (session: number): Step =>
  step("savepoint", session, true, async ({ stage }, { live, marks }) => {
    await stage.sessions[session]?.query("SAVEPOINT one");
    marks.push(live.length);
  });

const rollBackTo = (session: number): Step =>
  step("roll back to savepoint", session, true, async ({ stage }, transaction) => {
    const mark = transaction.marks.at(-1);
    if (mark === undefined) return;
    await stage.sessions[session]?.query("ROLLBACK TO one");
    transaction.live = transaction.live.slice(0, mark);
  });

const end = (session: number, how: "COMMIT" | "ROLLBACK"): Step =>
  step(how.toLowerCase(), session, true, async ({ model, stage }, { live }) => {
    await stage.sessions[session]?.query(how);
    if (how === "COMMIT") model.committed.push(...live);
    model.open[session] = undefined;
  });

/** Others on the server prepare as well, and places for it are few. */
const PREPARED_MAX = 2;

const prepare = (session: number): Step =>
  step("prepare", session, true, async ({ model, stage }, { live }) => {
    if (model.prepared.size >= PREPARED_MAX) return;
    model.prepares += 1;
    const gid = stage.gid(model.prepares);
    await stage.sessions[session]?.query(`PREPARE TRANSACTION '${gid}'`);
    model.prepared.set(gid, live);
    model.open[session] = undefined;
  });

async function endPrepared(
  { model, stage }: Given,
  pick: number,
  how: "COMMIT" | "ROLLBACK",
): Promise<void> {
  const gids = [...model.prepared.keys()];
  const gid = gids[pick % gids.length] ?? "";
  await stage.database.pool.query(`${how} PREPARED '${gid}'`);
  if (how === "COMMIT") model.committed.push(...(model.prepared.get(gid) ?? []));
  model.prepared.delete(gid);
}

const endAnyPrepared = (pick: number, how: "COMMIT" | "ROLLBACK"): Step => ({
  check: ({ prepared }) => prepared.size > 0,
  run: (model, stage) => endPrepared({ model, stage }, pick, how),
  toString: () => `${how.toLowerCase()} prepared ${pick}`,
});

const appendAlone = (count: number): Step => ({
  check: () => true,
  async run(model, stage) {
    model.committed.push(...(await append({ model, stage }, count)));
  },
  toString: () => `append ${count}`,
});

const poll = (times: number): Step => ({
  check: () => true,
  async run(model, stage) {
    for (let time = 0; time < times; time += 1) await stage.poll();
    const handled = await stage.handledAbove(model.base);
    const last = handled.at(-1) ?? model.base;
    const before = ascending(model.committed).filter((position) => position <= last);
    expect(handled).toEqual(before);
    const live = model.open.flatMap((transaction) => transaction?.live ?? []);
    const unsettled = [...live, ...[...model.prepared.values()].flat()];
    expect(unsettled.filter((position) => position < last)).toEqual([]);
  },
  toString: () => `poll ${times} times`,
});

const distrust = (): Step => ({
  check: () => true,
  run(model, stage) {
    stage.distrust();
    return poll(1).run(model, stage);
  },
  toString: () => "lose what is known",
});

const session = fc.nat(SESSIONS - 1);
const count = fc.integer({ min: 1, max: 4 });
const how = fc.constantFrom("COMMIT", "COMMIT", "ROLLBACK");
const polls = fc.constantFrom(1, 1, 2, 10).map(poll);
const appends = fc.tuple(session, count).map((given) => appendIn(...given));
const begins = fc.tuple(session, fc.boolean()).map((given) => begin(...given));
const ends = fc.tuple(session, how).map((given) => end(...given));

// Without the bias towards few commands: little happens there.
const commands = fc.noBias(
  fc.commands(
    [
      begins,
      begins,
      appends,
      appends,
      appends,
      session.map(insertIn),
      session.map(savepoint),
      session.map(rollBackTo),
      ends,
      ends,
      session.map(prepare),
      fc.tuple(fc.nat(5), how).map((given) => endAnyPrepared(...given)),
      count.map(appendAlone),
      polls,
      polls,
      polls,
      fc.constant(null).map(distrust),
    ],
    { maxCommands: 50, size: "max" },
  ),
);

/** Every transaction ends, and then everything that was committed is handled. */
async function finish(model: Model, stage: LogStage): Promise<void> {
  while (model.prepared.size > 0) await endPrepared({ model, stage }, 0, "COMMIT");
  for (let one = 0; one < SESSIONS; one += 1) {
    if (model.open[one] !== undefined) await end(one, "COMMIT").run(model, stage);
  }
  await eventually(
    async () => {
      await poll(1).run(model, stage);
      expect(await stage.handledAbove(model.base)).toEqual(ascending(model.committed));
    },
    { timeoutMs: 15_000, everyMs: 0 },
  );
  expect(await falseGapsIn(stage.database)).toEqual([]);
}

const TEST = { file: "consumer.test.ts", runs: 200, seconds: 25 };

it("handles what was committed, in order and once", { timeout: timeoutOf(TEST) }, async () => {
  const stage = await LogStage.open();
  const property = fc.asyncProperty(commands, async (all) => {
    const model: Model = {
      base: await stage.reset(),
      committed: [],
      open: Array.from({ length: SESSIONS }, () => undefined),
      prepared: new Map(),
      prepares: 0,
      streams: 0,
    };
    await fc.asyncModelRun(() => ({ model, real: stage }), all);
    await finish(model, stage);
  });
  await assertModel(property, TEST);
});
