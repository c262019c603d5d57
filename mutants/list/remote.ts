import { chaos, type Mutant, test } from "../mutant.ts";

/* Tasks of workers without a database: whose they are when a stream breaks or a server goes. */

const TOKENS = "test/integration/server/token-acts.test.ts";
const CLAIMING = "test/integration/server/http-claiming.test.ts";
const BY_TOKEN = "src/tasks/sql/by-token.ts";

export const REMOTE_MUTANTS: readonly Mutant[] = [
  {
    name: "lease-ended-by-who-lost-it",
    breaks: "a server ends the lease of a task that its worker has taken to another server",
    edits: [
      {
        file: "src/tasks/sql/lease.ts",
        find: "WHERE task.leased_by = $4::uuid",
        replace: "WHERE $4::uuid IS NOT NULL",
      },
    ],
    catchers: [test(TOKENS, { only: "keeps what it names" })],
  },
  {
    name: "token-of-any-tenant",
    breaks: "an act by token is not compared with the tenant of the task",
    edits: [
      {
        file: BY_TOKEN,
        find: "\n        AND task.tenant = given.tenant`;",
        replace: "\n        AND given.tenant IS NOT NULL`;",
      },
      {
        file: "src/tasks/claim-tokens.ts",
        find: "(row?.tenant === tokens[place]?.tenant ? row : undefined)",
        replace: "(tokens[place] === undefined ? undefined : row)",
      },
    ],
    catchers: [test(TOKENS, { only: "of another tenant" })],
  },
  {
    name: "claim-forgotten-with-one-task",
    breaks: "the end of one task at another server hides the others of its claim from the leader",
    edits: [
      {
        file: "src/tasks/claim-tokens.ts",
        find: "claim.open = Infinity;",
        replace: "claim.open = 1;",
      },
    ],
    catchers: [test(TOKENS, { only: "of an older claim" })],
  },
  {
    name: "pack-of-another-server-left-closed",
    breaks: "a task in a pack that another server holds is not found by its token",
    edits: [
      {
        file: "src/tasks/claim-tokens.ts",
        find: "(await openPacksByToken(this.#db, missing)) === 0",
        replace: "openPacksByToken.length > 0",
      },
    ],
    catchers: [test(TOKENS, { only: "of a pack" })],
  },
  {
    name: "adopted-task-out-of-line",
    breaks: "the next task of a key starts while another server's task of it was adopted here",
    edits: [
      {
        file: "src/tasks/key-claimer.ts",
        find: "asked.has(lane) && ranMs === undefined",
        replace: "asked.has(lane) && ranMs !== -1",
      },
    ],
    catchers: [test(TOKENS, { only: "behind a task of the same key" })],
  },
  {
    name: "time-begins-anew",
    breaks: "a task that is taken to another server has all of its time once more",
    edits: [
      {
        file: "src/tasks/attempts.ts",
        find: "seconds * 1000 - (task.ranMs ?? 0)",
        replace: "seconds * 1000",
      },
    ],
    catchers: [test(TOKENS, { only: "no more time" })],
  },
  {
    name: "short-lease-looked-at-late",
    breaks: "a lease by HTTP that is shorter than the server's is looked at when that would end",
    edits: [
      {
        file: BY_TOKEN,
        find: "LEAST(claim.check_at, (SELECT min(handed.lease_until) FROM handed))",
        replace: "GREATEST(claim.check_at, (SELECT min(handed.lease_until) FROM handed))",
      },
    ],
    catchers: [test(CLAIMING, { only: "ends with its lease" })],
  },
  {
    name: "lease-past-the-time-of-the-task",
    breaks: "a lease that is asked for by token lasts longer than the task may take",
    edits: [
      {
        file: BY_TOKEN,
        find: "task.claimed_at + make_interval(secs => COALESCE(",
        replace: "NULL::timestamptz + make_interval(secs => COALESCE(",
      },
    ],
    catchers: [test(CLAIMING, { only: "does not outlast" })],
  },
  {
    name: "left-task-uncounted",
    breaks: "a task that another server took over is not counted when its time is up",
    edits: [
      {
        file: "src/tasks/left-tasks.ts",
        find: "standing?.has(place) === false",
        replace: "standing?.size !== -1",
      },
    ],
    catchers: [test(TOKENS, { only: "in its slot of a limited queue" })],
  },
  {
    name: "excess-given-back",
    breaks: "tasks that do not fit into a message are claimed again, after a pause",
    edits: [
      {
        file: "src/server/workers/session.ts",
        find: "for (const one of rest) desk.reassign(one);",
        replace: "for (const one of rest) if (desk.slots) one.end(abandon(), NOTHING);",
      },
    ],
    catchers: [test("test/integration/server/tidemill-worker.test.ts", { only: "does not fit" })],
  },
  {
    name: "end-acked-before-commit",
    breaks: "a server acknowledges the end of a task before the database has it",
    edits: [
      {
        file: "src/server/workers/remote-acts.ts",
        find: "      assignment.end(act.outcome, (answer) => {\n",
        replace:
          "      const isDone = act.outcome.kind === 'completed';\n" +
          "      if (isDone) onDone({ state: 'completed', delaySeconds: 0 });\n" +
          "      assignment.end(act.outcome, (answer) => {\n        if (isDone) return;\n",
      },
    ],
    catchers: [
      chaos({
        seconds: 25,
        seeds: [1, 2, 3],
        faults: ["server-kill", "server-cut"],
        rules: ["unkept-commit"],
      }),
    ],
  },
  {
    name: "repeated-create-stored-again",
    breaks: "a create that is sent again, because its answer was lost, is stored again",
    edits: [
      {
        file: "src/server/producer/tidemill.ts",
        find: 'const key = producerId === "" ? "" : `${producerId}:${seq}:${place}`;',
        replace: "const key = `${producerId}:${seq}:${place}:${Math.random()}`;",
      },
    ],
    catchers: [
      chaos({
        seconds: 25,
        seeds: [1, 2, 3],
        faults: ["server-kill", "server-cut"],
        rules: ["doubled-enqueue"],
      }),
    ],
  },
];
