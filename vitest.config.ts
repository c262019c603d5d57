import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { NoSkips } from "./test/support/no-skips.ts";

const source = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    alias: {
      tidemill: source("./src/index.ts"),
    },
  },
  test: {
    include: [
      "src/**/*.test.ts",
      "test/**/*.test.ts",
      "dashboard/src/**/*.test.ts",
      "chaos/**/*.test.ts",
      "mutants/**/*.test.ts",
      "examples/**/*.test.ts",
    ],
    globalSetup: ["test/support/global-setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 90_000,
    maxWorkers: 3,
    reporters: ["default", new NoSkips()],
  },
});
