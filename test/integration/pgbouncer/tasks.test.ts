import { taskContract } from "../../contract/tasks.ts";
import { BRISK } from "../tasks/scene.ts";
import { pooledSuite } from "./pooled.ts";

const { missing, connect } = pooledSuite();

taskContract("through PgBouncer in transaction mode", {
  missing,
  options: {
    ...BRISK,
    leaderStrategy: "lease",
    dispatcherStrategy: "poll",
    dispatcherInterval: 50,
  },
  connect,
});

taskContract("through PgBouncer with a direct address beside it", {
  missing,
  options: { ...BRISK, leaderStrategy: "advisory", dispatcherStrategy: "notify" },
  connect: (database, options) => connect(database, { ...options, directUrl: database.url }),
});
