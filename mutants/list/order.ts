import { type Mutant, model, test } from "../mutant.ts";

/* The order of keys and lanes, limits, schedules, and who leads. */

const KEYS = "src/tasks/sql/keys.ts";
const SETTLING = "src/tasks/settling.ts";
const TASKS = "sql/migrations/0004_tasks.sql";
const LIMITS = "sql/migrations/0007_limits.sql";
const FIRINGS = "src/schedules/sql/firings.ts";
const ASSIGNMENTS = "src/cluster/sql/assignments.ts";

const OF_TERM = "WHERE id = 1 AND term = $1 AND leader_id = $2\n        FOR SHARE\n   )";
const OF_ANY_TERM = `WHERE id = 1 AND $1::bigint IS NOT NULL AND $2::uuid IS NOT NULL
        FOR SHARE
   )`;

export const ORDER_MUTANTS: readonly Mutant[] = [
  {
    name: "bucket-owner-unlocked",
    breaks: "a keyed claim looks who owns the bucket, and takes tasks after that has changed",
    edits: [
      {
        file: KEYS,
        find: `
        AND \${more}
        FOR SHARE`,
        replace: `
        AND \${more}`,
      },
    ],
    catchers: [test("test/model/interleavings.test.ts", { only: "the move of its bucket" })],
  },
  {
    name: "bucket-epoch-ignored",
    breaks: "a worker claims keys of buckets that it does not own any more",
    edits: [
      {
        file: KEYS,
        find: "worker_id = $2::uuid AND epoch = $5::bigint",
        replace: "worker_id = $2::uuid AND $5::bigint IS NOT NULL",
      },
    ],
    catchers: [
      model("task-queue.test.ts"),
      test("test/model/interleavings.test.ts", { only: "the move of its bucket" }),
    ],
  },
  {
    name: "keys-of-any-tenant",
    breaks: "a server owns keys of tenants that have no worker at it",
    edits: [
      {
        file: "src/tasks/bucket-moves.ts",
        find: "const served = member.tenants.get(tenant)?.queues ?? [];",
        replace: "const served = [...member.tenants.values()].flatMap((one) => one.queues);",
      },
    ],
    catchers: [test("src/tasks/bucket-moves.test.ts")],
  },
  {
    name: "tenants-share-lanes",
    breaks: "keys of all tenants wait in the lanes of one key space",
    edits: [
      {
        file: "sql/migrations/0014_keys_of_tenants.sql",
        find: "IF owner = 'default' THEN",
        replace: "IF owner IS NOT NULL THEN",
      },
    ],
    catchers: [test("test/integration/tasks/tenant-keys.test.ts", { only: "one space" })],
  },
  {
    name: "next-of-key-too-early",
    breaks: "the next task of a key starts before the end of the one before it was accepted",
    edits: [
      {
        file: "src/tasks/executor.ts",
        find: "task.isCancelled && isUndone ? settleCancelled(task) : settlement);\n",
        replace: `task.isCancelled && isUndone ? settleCancelled(task) : settlement);
    if (task.key === undefined || isUndone) return;
    const next = this.#keys.leave(task.key, task);
    if (next === undefined) return;
    this.lines.push(next);
    this.#startMore();
`,
      },
    ],
    catchers: [
      test("test/sim/simulation.test.ts", {
        only: "keeps its promises",
        seeds: [1],
      }),
      test("test/integration/tasks/commit-unknown.test.ts", { only: "the order of keys" }),
    ],
  },
  {
    name: "floor-passes-late-commits",
    breaks: "the floor of a lane passes numbers of transactions that have not ended",
    edits: [
      {
        file: SETTLING,
        find: "this.#epoch === undefined || oldestRunning <= this.#epoch.fence",
        replace: "this.#epoch === undefined || oldestRunning <= 0n",
      },
    ],
    catchers: [test("test/integration/tasks/late-commits.test.ts")],
  },
  {
    name: "floor-survives-crash",
    breaks: "floors that rest on a claim are kept though a crash took that claim back",
    edits: [
      {
        file: "src/tasks/sql/crash-marker.ts",
        find: "`(${marker}::text IS NULL OR ${marker}::text = ${MARKER})`",
        replace: "`(${marker}::text IS NULL OR TRUE OR ${marker}::text = ${MARKER})`",
      },
    ],
    catchers: [test("test/integration/tasks/floors.test.ts")],
  },
  {
    name: "number-before-xid",
    breaks: "an enqueue draws the numbers of its tasks before its transaction has an id",
    edits: [
      {
        file: TASKS,
        find: `
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {schema}.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();`,
        replace: "",
      },
      {
        file: TASKS,
        find: `
CREATE TRIGGER tidemill_draw_xid_first BEFORE INSERT ON {schema}.task_packs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.draw_xid_first();`,
        replace: "",
      },
    ],
    catchers: [test("test/integration/tasks/late-commits.test.ts")],
  },
  {
    name: "limit-counted-unlocked",
    breaks: "two workers count what is left of a limit at the same time, and both take it",
    edits: [
      {
        file: LIMITS,
        // The insert alone would wait for whoever is writing the row.
        find: `VALUES (queue_name, 0) ON CONFLICT DO NOTHING;
    SELECT one.granted INTO used FROM {schema}.limit_slots AS one
     WHERE one.queue = queue_name FOR UPDATE;`,
        replace: `SELECT queue_name, 0 WHERE NOT EXISTS (
        SELECT FROM {schema}.limit_slots AS known WHERE known.queue = queue_name);
    SELECT one.granted INTO used FROM {schema}.limit_slots AS one
     WHERE one.queue = queue_name;`,
      },
    ],
    catchers: [test("test/model/interleavings.test.ts", { only: "slots of a limit" })],
  },
  {
    name: "tick-fired-unasked",
    breaks: "a schedule fires though it does not wait for that tick any more",
    edits: [
      {
        file: FIRINGS,
        find: "      AND next_at = $2::timestamptz\n      AND paused_at IS NULL\n      FOR UPDATE",
        replace:
          "      AND $2::timestamptz IS NOT NULL\n      AND paused_at IS NULL\n      FOR UPDATE",
      },
      {
        file: FIRINGS,
        find: "        AND next_at = $2::timestamptz\n     RETURNING tenant, name",
        replace: "        AND $2::timestamptz IS NOT NULL\n     RETURNING tenant, name",
      },
      {
        file: "src/schedules/firing.ts",
        find: "return ticks.filter((tick) => !fired.has(tick.getTime()));",
        replace: "return ticks.filter((tick) => fired.size >= 0 && tick !== undefined);",
      },
    ],
    catchers: [
      test("test/model/interleaved-writers.test.ts", { only: "a tick that two leaders fire" }),
    ],
  },
  {
    name: "leader-of-any-term",
    breaks: "a leader that was replaced moves consumers",
    edits: [
      { file: ASSIGNMENTS, find: `${OF_TERM}, free`, replace: `${OF_ANY_TERM}, free` },
      { file: ASSIGNMENTS, find: `${OF_TERM}\n   UPDATE`, replace: `${OF_ANY_TERM}\n   UPDATE` },
    ],
    catchers: [test("test/integration/cluster/leader-term.test.ts")],
  },
  {
    name: "duty-of-any-term",
    breaks: "a leader that was replaced moves buckets, reaps, promotes and fires",
    edits: [
      {
        file: "src/cluster/sql/leader.ts",
        find: "WHERE id = 1 AND term = $1 AND leader_id = $2\n      AND set_config",
        replace:
          "WHERE id = 1 AND $1::bigint IS NOT NULL AND $2::uuid IS NOT NULL\n      AND set_config",
      },
    ],
    catchers: [
      test("test/model/interleaved-writers.test.ts", { only: "a tick that two leaders fire" }),
      test("test/integration/tasks/stale-leader.test.ts"),
    ],
  },
];
