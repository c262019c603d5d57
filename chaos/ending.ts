import { messageOf, TidemillError } from "../src/base/errors.ts";
import { EXIT_GAVE_BACK, type Stopped } from "../src/base/stop-signal.ts";

/* With which codes processes end that are not told to. Any other is a crash, and breaks a rule. */

/** What it needs to begin is away. Whoever runs processes tries again. */
export const OUTAGE_CODE = 8;
/** Others took it for dead, and it must not run on: a new one is to be started. */
export const REMOVED_CODE = 9;

/** Of a process that could not begin. */
export function endUnbegun(error: unknown): never {
  if (!(error instanceof TidemillError && error.retryable)) throw error;
  return endWith(OUTAGE_CODE, error);
}

/** Of a worker or a server that could not go on. */
export function endRemoved(error: unknown): never {
  const failures: unknown[] = error instanceof AggregateError ? error.errors : [error];
  if (!failures.every(isRemoval)) throw error;
  return endWith(REMOVED_CODE, error);
}

const isRemoval = (error: unknown): boolean =>
  error instanceof TidemillError && error.code === "TM_REGISTRATION_LOST";

function endWith(code: number, error: unknown): never {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exit(code);
}

/** Stops it when the process is told to, and then knows the code to end with. */
export function stopWhenTold(one: { stop(): Promise<Stopped> }): () => Promise<number> {
  const stops: Promise<Stopped>[] = [];
  process.once("SIGTERM", () => stops.push(one.stop()));
  return async () => {
    const stopped = await Promise.all(stops);
    return stopped.some(({ givenBack }) => givenBack > 0) ? EXIT_GAVE_BACK : 0;
  };
}
