import { eventContract } from "../../contract/events.ts";

eventContract("on a direct connection", {
  options: {},
  connect: (database, options) => database.connect(options),
});
