import { beforeEach, describe, expect, it } from "vitest";
import { completed, queue, type Tidemill } from "../../../src/index.ts";
import { NO_LIMITS } from "../../../src/tasks/limits.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type KeyOwner, ownAll } from "./key-owner.ts";
import { LateAnswers } from "./late-answers.ts";
import { range } from "./scene.ts";

/* What an owner of keys hears while it waits for the answer to something else. */

const orders = queue("orders");

let database: TestDatabase;
let mill: Tidemill;
let owner: KeyOwner;
let answers: LateAnswers;
let first: string;
let lane: number;

beforeEach(async () => {
  database = await testDatabase();
  mill = await database.connect();
  first = (await mill.enqueue(orders, 1, { partitionKey: "order:1" })).id;
  const { rows } = await database.pool.query("SELECT lane FROM tidemill.tasks");
  lane = rows[0].lane;
  owner = await ownAll(
    database,
    orders.handle(() => completed()),
    (session) => {
      answers = new LateAnswers(session);
      return answers;
    },
  );
});

async function holdFirst(why: "retry" | "probation" = "retry"): Promise<void> {
  await database.pool.query(
    `INSERT INTO tidemill.key_holds
            (key_space_id, tenant, partition_key, lane, why, until, task_id)
     SELECT 0, tenant, partition_key, lane, $1, NOW(), id FROM tidemill.tasks`,
    [why],
  );
}

describe("the head of a held key", () => {
  it.each(["retry", "probation"] as const)(
    "waits for the rate of its key, which its new owner does not know: %s",
    async (why) => {
      const keyRate = { count: 1, seconds: 1.5 };
      await holdFirst(why);
      owner.keys.useLimits(new Map([["orders", { ...NO_LIMITS, keyRate }]]));
      expect(await owner.claimHeads()).toEqual([]);
      await eventually(async () => expect(await owner.claimHeads()).toEqual([first]));
    },
  );
});

describe("a key that is held while somebody asks which are", () => {
  it("is not forgotten when the answer says that none is", async () => {
    answers.delay("key_holds_next");
    const claiming = owner.claimHeads();
    await answers.answered;
    await holdFirst();
    owner.keys.headEnded();
    answers.release();
    expect(await claiming).toEqual([]);
    expect(await owner.claimHeads()).toEqual([first]);
  });

  it("is not forgotten when many spaces were asked at once", async () => {
    const { asked } = owner.keys;
    await holdFirst();
    owner.keys.headEnded();
    const nothing = { hasRows: false, hasPacks: false, hasHolds: false };
    owner.keys.probedWith(nothing, asked, false);
    expect(await owner.claimHeads()).toEqual([first]);
  });
});

describe("a lane that is closed", () => {
  it("while it is asked whether it may open stays closed until that is asked again", async () => {
    await database.pool.query("UPDATE tidemill.bucket_owners SET epoch = 2");
    owner.keys.own({ epoch: "2", buckets: range(360) });
    answers.delay("key_lanes_foreign");
    const opening = owner.keys.open();
    await answers.answered;
    owner.keys.close(lane);
    answers.release();
    await opening;
    expect(owner.keys.owns).toBe(360);
    expect(await owner.claim()).toEqual([]);
    await eventually(async () => {
      await owner.keys.open();
      expect(await owner.claim()).toEqual([first]);
    });
  });

  it("while limits are taken for a claim is not claimed from", async () => {
    const claiming = owner.claim();
    owner.keys.close(lane);
    expect(await claiming).toEqual([]);
  });

  it("while limits are taken for the heads of held keys is not claimed from", async () => {
    await holdFirst();
    answers.delay("key_holds_advance");
    const claiming = owner.claimHeads();
    await answers.answered;
    owner.keys.close(lane);
    answers.release();
    expect(await claiming).toEqual([]);
  });
});
