import { type ContractSetup } from "../../contract/setup.ts";
import { taskContract } from "../../contract/tasks.ts";
import { BRISK } from "./scene.ts";

const connect: ContractSetup["connect"] = (database, options) => database.connect(options);

taskContract("on a direct connection that listens", {
  options: { ...BRISK, dispatcherStrategy: "notify" },
  connect,
});

taskContract("on a direct connection that polls", {
  options: { ...BRISK, dispatcherStrategy: "poll", dispatcherInterval: 50 },
  connect,
});
