import { expect, it } from "vitest";
import { ManualClock, settle } from "../../test/support/manual-clock.ts";
import { silentLogger } from "../base/log.ts";
import type { Queryable } from "../db/database.ts";
import type { Statement } from "../db/statement.ts";
import { ClaimedPack } from "./claimed-pack.ts";
import type { ClaimedTask, TaskPack } from "./claimed-task.ts";
import { EndedClaims } from "./ended-claims.ts";
import { PackFinisher } from "./pack-finisher.ts";
import { FIELD } from "./sql/claim.ts";

const SETTLEMENT = { kind: "complete", result: "" } as const;

/** Of so many tasks, none of which has ended. */
function pack(id: number, size: number): TaskPack {
  const ids = Array.from({ length: size }, (_, n) => id + n);
  const made: TaskPack = new ClaimedPack(
    [id, 1, 5, 0, "", "", ids.join(), ""].join(FIELD),
    "claim",
  );
  for (const one of ids) {
    const task = {
      id: String(one),
      queue: "orders",
      result: "",
      pack: made,
      settlement: SETTLEMENT,
    };
    made.tasks.push(task as unknown as ClaimedTask);
  }
  return made;
}

it("opens a pack that waits too long, also when others complete without end", async () => {
  const clock = new ManualClock();
  const sent: string[] = [];
  const db: Queryable = {
    query: <Row>({ name }: Statement, values: readonly unknown[] = []): Promise<Row[]> => {
      sent.push(name);
      if (name !== "packs_complete") return Promise.resolve([]);
      const ids = String(values[0]).slice(1, -1).split(",");
      return Promise.resolve(ids.map((id) => ({ id, is_done: true })) as Row[]);
    },
  };
  let next = 1_000;
  const complete = (): void => {
    next += 10;
    const full = pack(next, 1);
    for (const task of full.tasks) finisher.add(full, task);
  };
  const passedOn: string[] = [];
  const stop = new AbortController();
  const finisher = new PackFinisher(db, {
    clock,
    logger: silentLogger,
    endedClaims: new EndedClaims(),
    onCompleted: () => {},
    onOpened: ({ id }) => passedOn.push(id),
    onAnswered: complete, // Another one is full before this one is answered for.
  });
  const running = finisher.run(stop.signal);
  const slow = pack(1, 2);
  finisher.add(slow, slow.tasks[0]!);
  complete();
  await settle();
  expect(passedOn).toEqual([]);
  clock.advance(21);
  for (let round = 0; round < 5; round += 1) await settle();
  expect(passedOn).toEqual(["1"]);
  expect(sent.filter((name) => name === "packs_open_claimed")).toHaveLength(1);
  stop.abort();
  await running;
});
