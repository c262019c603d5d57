import { once } from "node:events";
import {
  type ConnectOptions,
  type Consumer,
  Tidemill,
  type WorkerOptions,
} from "../../src/index.ts";
import { recordHandled, recording } from "./recording.ts";

/** One worker as a program of its own: says in JSON lines what becomes of it. */
export interface WorkerProcessSpec {
  readonly url: string;
  readonly connect?: ConnectOptions;
  readonly consumers: readonly string[];
  /** Of every consumer. Defaults to none. */
  readonly tables?: readonly string[];
  /** Handlers stay in the middle of an event of this type, until SIGUSR2. */
  readonly holds?: string;
  readonly options: Omit<WorkerOptions, "consumers" | "logger">;
}

const say = (line: object): void => {
  process.stdout.write(`${JSON.stringify(line)}\n`);
};

const spec = JSON.parse(process.argv[2] ?? "{}") as WorkerProcessSpec;
const released = once(process, "SIGUSR2");
const handle: Consumer["handle"] = async (event, context) => {
  await recordHandled(event, context);
  if (event.type !== spec.holds) return;
  say({ event: "holding" });
  await released;
};
const mill = await Tidemill.connect(spec.url, spec.connect);
const worker = mill.worker({
  ...spec.options,
  consumers: spec.consumers.map((name) =>
    recording(name, { handle, ...(spec.tables === undefined ? {} : { tables: spec.tables }) }),
  ),
});
process.once("SIGTERM", () => {
  say({ event: "stopping" });
  void worker.stop();
});
say({ event: "starting", id: worker.id });
try {
  await worker.start();
  say({ event: "stopped" });
} catch (error) {
  say({ event: "failed", name: error instanceof Error ? error.name : String(error) });
  process.exitCode = 1;
}
await mill.close();
