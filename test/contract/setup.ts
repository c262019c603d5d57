import { beforeEach, describe } from "vitest";
import type { ConnectOptions, Tidemill, WorkerOptions } from "../../src/index.ts";
import type { TestDatabase } from "../support/database.ts";

/** How a suite reaches its database, and what its workers must be told because of it. */
export interface ContractSetup {
  /** Says why it cannot run here: its tests are then skipped with this reason. */
  readonly missing?: string | undefined;
  /** The strategies under test. */
  readonly options: Omit<WorkerOptions, "consumers" | "handlers">;
  readonly connect: (database: TestDatabase, options?: ConnectOptions) => Promise<Tidemill>;
}

/** The tests of a contract in one set-up. */
export function describeIn({ missing }: ContractSetup, name: string, tests: () => void): void {
  describe(name, () => {
    beforeEach((context) => {
      if (missing !== undefined) context.skip(missing);
    });
    tests();
  });
}
