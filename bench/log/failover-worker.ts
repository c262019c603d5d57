import { consumer, Tidemill } from "../../src/index.ts";

/*
 * A worker with the defaults, in a process of its own: prints one line of JSON when it runs, and
 * one for each event that it begins to handle, with the wall clock that all processes here share.
 */

const [url = "", names = ""] = process.argv.slice(2);
const say = (line: object): boolean => process.stdout.write(`${JSON.stringify(line)}\n`);
const now = (): number => performance.timeOrigin + performance.now();

const mill = await Tidemill.connect(url, { notifyChannel: "worker_events" });
const consumers = names
  .split(",")
  .map((name) => consumer(name, { handle: () => void say({ handled: name, at: now() }) }));
const worker = await mill.startWorker({ consumers, dispatcherStrategy: "notify" });
process.once("SIGTERM", () => {
  say({ stopping: now() });
  worker.stop().then(
    () => process.exit(0),
    () => process.exit(1),
  );
});
say({ ready: worker.id });
