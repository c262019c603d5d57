import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** A dozen seconds or more, which their size does not tell. As measured in a run of the suite. */
const LONG: readonly string[] = [
  "test/compat/codeq/workers.test.ts", // It waits for long, and others have the processor.
  "test/compat/codeq/clients.test.ts",
  "test/integration/package/pack.test.ts",
  "test/browser/dashboard.test.ts",
  "test/kafka/kafka.test.ts",
  "test/integration/frontier/crash-stress.test.ts",
  "test/integration/pgbouncer/tasks.test.ts",
  "test/sim/simulation.test.ts",
  "test/integration/tasks/direct.test.ts",
  "test/integration/cli/dev.test.ts",
  "test/integration/docs/dev-command.test.ts",
  "test/model/task-queue.test.ts",
  "test/integration/tasks/poison-process.test.ts",
  "test/model/consumer.test.ts",
  "test/compat/eventsalsa/cluster.test.ts",
  "test/compat/eventsalsa/cluster-lease.test.ts",
  "test/sim/differential.test.ts",
  "test/integration/client/servers-killed.test.ts",
  // Seven processes, some of them with short leases: not beside the browser and Kafka.
  "test/integration/docs/tutorial.test.ts",
];

/**
 * Starts with what takes longest, so that no worker is busy with it at the end, when the others
 * have nothing left to do. The rest comes by size.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { root } = this.ctx.config;
    const gone = LONG.filter((file) => !existsSync(join(root, file)));
    if (gone.length > 0) throw new Error(`LONG names what is gone: ${gone.join()}`);
    const places = new Map(LONG.map((file, place) => [join(root, file), place]));
    const placeOf = ({ moduleId }: TestSpecification): number =>
      places.get(moduleId) ?? LONG.length;
    return (await super.sort(files)).sort((one, other) => placeOf(one) - placeOf(other));
  }
}
