import { createServer } from "node:http";
import { listen } from "../support/spoken.ts";

interface Options {
  readonly port: number;
  /** How long a call takes. */
  readonly jobMs: number;
}

/** Calls since the last question. */
export interface Arrivals {
  /** Numbers of urgent jobs, and when each came, in milliseconds since 1970. */
  readonly urgent: [number, number][];
  readonly others: number;
}

const { port, jobMs } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;
let arrivals: { urgent: [number, number][]; others: number } = { urgent: [], others: 0 };

const server = createServer((request, response) => {
  const atMs = performance.timeOrigin + performance.now();
  let body = "";
  request.setEncoding("utf8").on("data", (text: string) => {
    body += text;
  });
  request.on("end", () => {
    if (request.url === "/urgent") arrivals.urgent.push([Number(body), atMs]);
    else arrivals.others += 1;
    setTimeout(() => response.writeHead(204).end(), jobMs);
  });
});
await new Promise<void>((resolve) => {
  server.listen(port, "127.0.0.1", resolve);
});

await listen(() => {
  const answer: Arrivals = arrivals;
  arrivals = { urgent: [], others: 0 };
  return Promise.resolve(answer);
});
process.exit(0);
