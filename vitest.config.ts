import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/longest-first.ts";
import { NoSkips } from "./test/support/no-skips.ts";

const source = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

const TIMEOUTS = { testTimeout: 60_000, hookTimeout: 90_000 };

export default defineConfig({
  resolve: {
    alias: {
      tidemill: source("./src/index.ts"),
    },
  },
  test: {
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    reporters: ["default", new NoSkips()],
    projects: [
      {
        extends: true,
        test: {
          ...TIMEOUTS,
          name: "unit",
          setupFiles: ["test/support/replayed-properties.ts"],
          include: ["src/**/*.test.ts", "chaos/**/*.test.ts", "dashboard/src/**/*.test.ts"],
          isolate: false, // A process of its own for each file would take most of their time.
        },
      },
      {
        extends: true,
        test: {
          ...TIMEOUTS,
          name: "whole",
          globalSetup: ["test/support/global-setup.ts"],
          setupFiles: ["test/support/each-file.ts", "test/support/replayed-properties.ts"],
          isolate: false, // See there.
          include: ["test/**/!(*.alone).test.ts", "mutants/**/*.test.ts", "examples/**/*.test.ts"],
        },
      },
      {
        extends: true,
        test: {
          ...TIMEOUTS,
          name: "alone", // Promises on time that mean something only while nothing else runs.
          globalSetup: ["test/support/global-setup.ts"],
          setupFiles: ["test/support/each-file.ts", "test/support/replayed-properties.ts"],
          include: ["test/**/*.alone.test.ts"],
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
