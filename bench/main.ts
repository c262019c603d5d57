import { parseArgs } from "node:util";
import { type Figure, missOf, printFigure } from "./support/figure.ts";
import { type BenchServer, startBenchServer } from "./support/server.ts";

type Suite = (server: BenchServer, quick: boolean) => AsyncGenerator<Figure>;

const SUITES: Readonly<Record<string, () => Promise<Suite>>> = {
  dashboard: async () => (await import("./dashboard/figures.ts")).dashboardFigures,
  feeds: async () => (await import("./feeds/figures.ts")).feedFigures,
  log: async () => (await import("./log/figures.ts")).logFigures,
  stream: async () => (await import("./stream/figures.ts")).streamFigures,
  tasks: async () => (await import("./tasks/figures.ts")).taskFigures,
};
const USAGE = `usage: npm run bench -- <${Object.keys(SUITES).join("|")}> [--quick] [--json]`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
const [name, ...rest] = positionals;
const load = SUITES[name ?? ""];
if (load === undefined || rest.length > 0) {
  process.stderr.write(
    `${name === undefined ? "no suite" : `no suite "${positionals.join(" ")}"`}; ${USAGE}\n`,
  );
  process.exit(2);
}

const figuresOf = await load();
await using server = await startBenchServer();
for await (const figure of figuresOf(server, values.quick)) {
  printFigure(figure, values.json);
  const miss = missOf(figure);
  // A quick run shows that everything works, and nothing of how fast it is.
  if (miss === undefined || values.quick) continue;
  process.stderr.write(`${miss}\n`);
  process.exitCode = 1;
}
