import { setTimeout as delay } from "node:timers/promises";
import { startPgBouncer, whyNoPgBouncer } from "../../test/support/pgbouncer.ts";
import { type Fault, LEASE_MS, LOSS_MS, onWorker, RESTART_MS, RESUME_MS } from "./fault.ts";

/** What is between a worker and the database. */
export const NETWORK_FAULTS: readonly Fault[] = [
  onWorker("reset", RESUME_MS, async (worker) => {
    worker.proxy.reset();
  }),
  onWorker("cut", LOSS_MS, async (worker) => {
    worker.proxy.cut();
    await delay(1_000);
    worker.proxy.mend();
  }),
  onWorker("half-open", LOSS_MS, async (worker, stage) => {
    worker.proxy.swallow("both");
    await stage.noteHeld(worker);
    await delay(LEASE_MS * 1.5);
    worker.proxy.mend();
  }),
  onWorker("lost-answers", LOSS_MS, async (worker) => {
    worker.proxy.swallow("down");
    await delay(1_500);
    worker.proxy.mend();
  }),
  onWorker("lost-questions", LOSS_MS, async (worker) => {
    worker.proxy.swallow("up");
    await delay(1_500);
    worker.proxy.mend();
  }),
  onWorker("slow-network", RESUME_MS, async (worker, _, random) => {
    worker.proxy.delay(50 + random.below(250));
    await delay(2_000);
    worker.proxy.mend();
  }),
  {
    kind: "restart-pooler",
    boundMs: RESTART_MS,
    whyNot: whyNoPgBouncer,
    async strike(stage) {
      const first = await startPgBouncer(stage.server.url);
      const worker = await stage.startWorker({
        url: first.through(stage.server.url),
        isPooled: true,
      });
      await delay(1_500);
      await first.stop();
      await delay(500);
      const second = await startPgBouncer(stage.server.url, { listen_port: first.port });
      await delay(1_500);
      await worker.stop();
      await second.stop();
      return [worker.workerId ?? worker.name];
    },
  },
];
