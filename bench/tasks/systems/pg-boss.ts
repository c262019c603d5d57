import { peerProgram, peerVersion } from "../../support/program.ts";
import { readCount, type TaskSystem } from "../system.ts";

const JOBS = "pgboss.job WHERE name = 'bench'";

/** Marks what it completed, in place. */
export const pgBoss = (): TaskSystem => ({
  name: "pg-boss",
  version: peerVersion("pg-boss"),
  tuning: {
    throughput: "two loops of fetch and complete, 1,000 at a time; no supervision",
    latency: "work() with LISTEN/NOTIFY",
  },
  history: "rows in state completed",
  table: "pgboss.job",
  program: peerProgram("pg-boss.mjs"),
  completed: async (client) => await readCount(client, `${JOBS} AND state = 'completed'`),
});
