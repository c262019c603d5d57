import { chaos, type Edit, type Mutant, model, test } from "../mutant.ts";

/* Who holds a task, and whose word about its end counts. */

const FINISH = "src/tasks/sql/finish.ts";
const LEASE = "src/tasks/sql/lease.ts";
const PACKS = "src/tasks/sql/packs.ts";
const OPEN_PACKS = "src/tasks/sql/open-packs.ts";

const HELD = `task.id = given.id
        AND task.lease_generation = given.generation
        AND task.claim_id = given.claim_id\``;
const ENDED = HELD.replace("`", "\n        AND (given.holder");
const COMPLETED = `
        AND task.lease_generation = given.generation
        AND task.claim_id = ($5::uuid[])[given.claim]`;
const EXTENDED = `
    WHERE id = $1 AND lease_generation = $2 AND claim_id = $3
   RETURNING lease_until AS until`;
const PROGRESSED = `
    WHERE id = $1 AND lease_generation = $2 AND claim_id = $3
   RETURNING id`;

/** All compare the same triple; each is made to compare less of it. */
const fencedBy = (generation: boolean, claimId: boolean): Edit[] => {
  const without = (text: string): string => {
    let left = text;
    if (!generation) {
      left = left
        .replace("task.lease_generation = given.generation", "given.generation IS NOT NULL")
        .replace("lease_generation = $2", "$2::int IS NOT NULL");
    }
    if (!claimId) {
      left = left
        .replace("task.claim_id = (", "(")
        .replace("[given.claim]", "[given.claim] IS NOT NULL")
        .replace("task.claim_id = given.claim_id", "given.claim_id IS NOT NULL")
        .replace("claim_id = $3", "$3::uuid IS NOT NULL");
    }
    return left;
  };
  const places = [
    [FINISH, ENDED],
    [FINISH, COMPLETED],
    [LEASE, HELD],
    [LEASE, EXTENDED],
    [LEASE, PROGRESSED],
  ] as const;
  return places.map(([file, find]) => ({ file, find, replace: without(find) }));
};

const SAME_PACK = "ON pack.id = given.id AND pack.claim_id = given.claim_id";
const ANY_PACK = "ON pack.id = given.id";

export const LEASE_MUTANTS: readonly Mutant[] = [
  {
    name: "fence-without-claim-id",
    breaks: "a claim that a crash took back is mistaken for the next one of its generation",
    edits: fencedBy(true, false),
    catchers: [model("task-queue.test.ts")],
  },
  {
    name: "fence-without-generation",
    breaks: "a token of another generation is accepted if it names the claim",
    edits: fencedBy(false, true),
    catchers: [model("task-queue.test.ts")],
  },
  {
    name: "lost-task-runs-on",
    breaks: "the handler of a task whose lease is lost is not told, and runs beside the next one",
    edits: [
      {
        file: "src/tasks/executor.ts",
        find: "    abortTask(task, error);\n    this.#leaveToOthers(task);",
        replace: "    this.#leaveToOthers(task);",
      },
    ],
    catchers: [test("test/sim/simulation.test.ts", { only: "keeps its promises", seeds: [2] })],
  },
  {
    name: "fence-removed",
    breaks: "whoever ever held a task can end it while another one runs it",
    edits: fencedBy(false, false),
    catchers: [
      chaos({
        seconds: 30,
        seeds: [1, 2, 3],
        faults: ["pause-past-lease"],
        rules: ["foreign-effect", "unkept-commit", "doubled-effect"],
      }),
      model("task-queue.test.ts"),
    ],
  },
  {
    name: "pack-completed-by-anybody",
    breaks: "a pack is completed or opened by a worker that does not hold it",
    edits: [
      { file: PACKS, find: `${SAME_PACK}\n      ORDER BY`, replace: `${ANY_PACK}\n      ORDER BY` },
      { file: PACKS, find: `${SAME_PACK}\`;`, replace: `${ANY_PACK}\`;` },
    ],
    catchers: [test("test/model/pack-interleavings.test.ts")],
  },
  {
    name: "task-taken-twice",
    breaks: "a claim takes what it picked, though somebody else has taken it meanwhile",
    edits: [
      {
        file: "src/tasks/sql/claim.ts",
        find: `"task.ctid = ANY ((SELECT places FROM picked)::tid[]) AND task.state = 'pending'"`,
        replace: '"task.id = ANY ((SELECT ids FROM picked)::bigint[])"',
      },
    ],
    catchers: [test("test/model/interleavings.test.ts", { only: "two claims of the same lane" })],
  },
  {
    name: "pack-taken-twice",
    breaks: "a pack that another worker claimed meanwhile is claimed again",
    edits: [
      {
        file: PACKS,
        find: "\n         LIMIT line.take\n           FOR UPDATE SKIP LOCKED\n",
        replace: "\n         LIMIT line.take\n",
      },
      {
        file: PACKS,
        find: `WHERE pack.ctid = ANY ((SELECT places FROM picked)::tid[])
        AND pack.claim_id IS NULL`,
        replace: "WHERE pack.id = ANY ((SELECT ids FROM picked)::bigint[])",
      },
    ],
    catchers: [test("test/model/pack-interleavings.test.ts")],
  },
  {
    name: "reaped-in-time",
    breaks: "tasks and packs are taken from a worker whose lease has not ended",
    edits: [
      { file: OPEN_PACKS, find: '"live.lease_until <= NOW()"', replace: '"TRUE"' },
      {
        file: "src/tasks/sql/reap.ts",
        find: "\n         AND live.lease_until <= NOW()\n         FOR UPDATE",
        replace: "\n         FOR UPDATE",
      },
    ],
    catchers: [model("task-queue.test.ts")],
  },
  {
    name: "unknown-end-taken-as-accepted",
    breaks: "an end whose COMMIT was not answered is taken for done, and nobody asks again",
    edits: [
      {
        file: "src/tasks/finisher.ts",
        find: "await this.#writer.write(this.#sending, this.#setbacks);",
        replace: `await this.#writer
      .write(this.#sending, this.#setbacks)
      .catch(() => () => "accepted" as const);`,
      },
    ],
    catchers: [test("test/integration/tasks/commit-unknown.test.ts")],
  },
  {
    name: "unknown-end-taken-as-refused",
    breaks: "an end whose COMMIT was not answered is sent again, and its refusal believed",
    edits: [
      {
        file: "src/tasks/end-writer.ts",
        find: "return doubtful.length === 0 ? new Set()",
        replace: "return doubtful.length >= 0 ? new Set()",
      },
    ],
    catchers: [test("test/integration/db/half-open.test.ts", { only: "in history" })],
  },
  {
    name: "unknown-claim-forgotten",
    breaks: "a claim that was not answered, and was made all the same, is left as it is",
    edits: [
      {
        file: "src/tasks/claims.ts",
        find: "      this.#doubtful.push(claim.id); // It may have been committed all the same.\n",
        replace: "",
      },
    ],
    catchers: [test("test/integration/tasks/commit-unknown.test.ts")],
  },
];
