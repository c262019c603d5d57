import { parseArgs } from "node:util";
import { printFigure } from "./support/figure.ts";
import { startBenchServer } from "./support/server.ts";

const USAGE = "usage: npm run bench -- log [--quick] [--json]";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
const [suite, ...rest] = positionals;
if (suite !== "log" || rest.length > 0) {
  process.stderr.write(
    `${suite === undefined ? "no suite" : `no suite "${positionals.join(" ")}"`}; ${USAGE}\n`,
  );
  process.exit(2);
}

const { logFigures } = await import("./log/figures.ts");
await using server = await startBenchServer();
for await (const figure of logFigures(server, values.quick)) printFigure(figure, values.json);
