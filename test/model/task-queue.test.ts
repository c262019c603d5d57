import fc from "fast-check";
import { expect, it } from "vitest";
import { assertModel, timeoutOf } from "./replay.ts";
import {
  cancel,
  claimKeyed,
  claimKeyedBy,
  claimPacksOf,
  claimUnkeyed,
  crash,
  type EndSpec,
  end,
  endBy,
  enqueue,
  enqueueKeyedPack,
  enqueuePack,
  expire,
  type Forgery,
  hear,
  housekeep,
  move,
  openPacks,
  pause,
  pauseKey,
  redrive,
  renew,
  restart,
  retry,
  type TaskCommand,
  TWO_PACKS,
  timePasses,
  useStale,
} from "./task-commands.ts";
import { isLive, TaskModel } from "./task-model.ts";
import { KEYS, PARKING, QUEUES, Stage, WORKERS } from "./task-stage.ts";

/*
 * The task queue against a map of tasks. Three workers, of which any may lose its leases, crash or
 * hear late that its buckets moved, claim and end tasks in an order that chance decides; after each
 * command the tables must hold what the model says:
 *
 * - a task ends once, by its newest token; whoever has another one changes nothing
 * - each claim counts one attempt, and one that is given back counts none
 * - no task of a key is claimed while an earlier one lives, unless its own worker holds that
 * - every task that was enqueued is live, ended or dead, and is that once
 *
 * When the commands are over, one worker must be able to bring every task to its end.
 */

const queueName = fc.constantFrom(...QUEUES.map(({ name }) => name));
const key = fc.constantFrom(...KEYS);
const someKeys = fc.subarray([...KEYS], { minLength: 1 });
const worker = fc.nat(WORKERS - 1);
const index = fc.nat(30);
const seldom = fc.constantFrom(true, false, false);
const newTasks = fc.array(
  fc.record({
    key: fc.option(key, { nil: null, freq: 3 }),
    once: fc.option(fc.constantFrom("x", "y"), { nil: null, freq: 1 }),
    variant: fc.constantFrom(0, 0, 0, 1),
  }),
  { minLength: 1, maxLength: 5 },
);
const ends = fc.array(
  fc.record<EndSpec>({
    pick: index,
    act: fc.constantFrom("complete", "complete", "nack", "nack", "wait", "fail"),
  }),
  { minLength: 1, maxLength: 3 },
);
const claimer = fc.oneof(
  { arbitrary: index.map((owner) => ({ owner })), weight: 3 },
  { arbitrary: worker.map((worker) => ({ worker })), weight: 1 },
);
const forgery = fc.constantFrom<Forgery>("old token", "other claim", "other generation");

/** How often each comes, beside the others. */
const choices: [times: number, fc.Arbitrary<TaskCommand>][] = [
  [4, fc.tuple(queueName, newTasks).map((given) => enqueue(...given))],
  [
    4,
    fc
      .tuple(worker, queueName, fc.integer({ min: 1, max: 3 }), fc.boolean())
      .map((given) => claimUnkeyed(...given)),
  ],
  [
    7,
    fc
      .record({
        who: claimer,
        want: fc.constantFrom(1, 2, 10),
        isNews: seldom,
        opensEpoch: fc.boolean(),
        isWhole: fc.boolean(),
      })
      .map(claimKeyed),
  ],
  [3, fc.tuple(queueName, someKeys).map((given) => enqueueKeyedPack(...given))],
  [3, fc.tuple(queueName, fc.integer({ min: 1, max: 4 })).map((given) => enqueuePack(...given))],
  [
    4,
    fc
      .tuple(worker, queueName, fc.integer({ min: 1, max: 2 }))
      .map((given) => claimPacksOf(...given)),
  ],
  [1, fc.tuple(queueName, fc.constant(1)).map((given) => openPacks(...given))],
  [8, fc.tuple(worker, ends).map((given) => end(...given))],
  [2, worker.map(hear)],
  [2, fc.tuple(queueName, key, worker, fc.boolean()).map((given) => move(...given))],
  [2, fc.constant(null).map(housekeep)],
  [2, fc.tuple(forgery, index).map((given) => useStale(...given))],
  [2, fc.tuple(worker, fc.nat(2), fc.boolean()).map((given) => expire(...given))],
  [1, fc.constant(null).map(timePasses)],
  [1, worker.map(renew)],
  [1, worker.map(restart)],
  [1, worker.map(crash)],
  [1, index.map(cancel)],
  [1, index.map(retry)],
  [1, fc.constant(null).map(redrive)],
  [1, fc.tuple(queueName, seldom).map((given) => pause(...given))],
  [1, fc.tuple(queueName, key, seldom).map((given) => pauseKey(...given))],
];

// Without the bias towards few commands: little happens there.
const commands = fc.noBias(
  fc.commands(
    choices.flatMap(([times, one]) => Array.from({ length: times }, () => one)),
    { maxCommands: 60, size: "max" },
  ),
);

/** All workers die, and one that owns everything completes what is left. */
async function finish(model: TaskModel, stage: Stage): Promise<void> {
  for (let index = 0; index < WORKERS; index += 1) await stage.crash(index);
  const steps = [timePasses(), housekeep(), redrive(), crash(0)];
  for (const { name } of QUEUES) {
    steps.push(pause(name, false));
    for (const one of KEYS) steps.push(pauseKey(name, one, false), move(name, one, 0, false));
  }
  for (const step of [...steps, hear(0)]) await step.run(model, stage);
  const [one] = stage.workers;
  if (one === undefined) throw new Error("no worker");
  for (let round = 0; round < 2 * model.all.length && model.all.some(isLive); round += 1) {
    one.isWhole = round % 2 === 0;
    await claimKeyedBy(one, TWO_PACKS, true, { model, stage });
    for (const { name } of QUEUES) {
      await claimUnkeyed(0, name, 10, true).run(model, stage);
      await claimPacksOf(0, name, 2).run(model, stage);
    }
    const ends = one.gates.map((_, pick) => ({ pick, act: "complete" as const }));
    await endBy(one, ends, model);
    await stage.verify(model);
  }
  expect(model.all.filter(isLive)).toEqual([]);
}

const TEST = { file: "task-queue.test.ts", runs: 100, seconds: 20 };

it("is a map of tasks, each of which ends once", { timeout: timeoutOf(TEST) }, async () => {
  const stage = await Stage.open();
  const property = fc.asyncProperty(newTasks, newTasks, commands, async (some, others, all) => {
    const model = new TaskModel(PARKING);
    await stage.reset(model);
    await enqueue("loose", some).run(model, stage);
    await enqueue("strict", others).run(model, stage);
    await fc.asyncModelRun(() => ({ model, real: stage }), all);
    await finish(model, stage);
  });
  await assertModel(property, TEST);
});
