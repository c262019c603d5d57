import { once } from "node:events";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { EXIT_GAVE_BACK, type Stoppable } from "../../base/stop-signal.ts";

export interface StoppingProgram {
  /** How the log calls it. */
  readonly name: string;
  readonly logger: Logger;
  /** Of `stopSignal`, which was there before the program was started. */
  readonly signal: AbortSignal;
}

/** Until a signal, or until it cannot go on; then it drains, and the exit code says how it went. */
export async function runUntilStopped(
  running: Stoppable,
  { name, logger, signal }: StoppingProgram,
): Promise<void> {
  const ended = new AbortController();
  const asked = signal.aborted
    ? Promise.resolve()
    : once(signal, "abort", { signal: ended.signal }).then(
        () => {},
        () => {}, // It ended by itself.
      );
  try {
    await Promise.race([asked, running.finished]);
    logger.info({}, "draining");
    const { givenBack } = await running.stop();
    if (givenBack > 0) process.exitCode = EXIT_GAVE_BACK;
    logger.info({ givenBack }, "stopped");
  } catch (error) {
    logger.error({ error: messageOf(error) }, `the ${name} cannot go on`);
    await running.stop().catch(() => {}); // It says the same again.
    throw error;
  } finally {
    ended.abort();
  }
}
