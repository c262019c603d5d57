import { openSync, readFileSync, writeSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/**
 * A target of HTTP jobs as a program of its own, to be killed. It writes every call down before it
 * does anything, and every answer before it is sent: what it says of itself holds whatever dies.
 */
export interface JobTargetSpec {
  /** Lines of JSON; it goes on with what is there. */
  readonly record: string;
  /** 0: any. */
  readonly port: number;
  /** Calls that `busy` takes in a second. The others are told to come back. */
  readonly busyPerSecond: number;
}

/** A call, as it came. */
export interface CallRecord {
  readonly atMs: number;
  readonly task: string;
  readonly attempt: number;
  readonly key: string;
  readonly does: string;
  readonly n: number;
}

/** What the call of that attempt was answered. */
export interface AnswerRecord {
  readonly atMs: number;
  readonly task: string;
  readonly attempt: number;
  readonly status: number;
}

const spec = JSON.parse(process.argv[2] ?? "{}") as JobTargetSpec;
const file = openSync(spec.record, "a");
/** The kernel has it when this returns, and keeps it when the process is killed. */
const write = (line: CallRecord | AnswerRecord): void => {
  writeSync(file, `${JSON.stringify(line)}\n`);
};

const seen = new Map<string, number>();
for (const line of readFileSync(spec.record, "utf8").split("\n")) {
  if (line === "") continue;
  const { key } = JSON.parse(line) as Partial<CallRecord>;
  if (key !== undefined) seen.set(key, (seen.get(key) ?? 0) + 1);
}

let second = 0;
let taken = 0;

function isBusy(): boolean {
  const now = Math.floor(performance.now() / 1000);
  if (now !== second) [second, taken] = [now, 0];
  taken += 1;
  return taken > spec.busyPerSecond;
}

/** The status of an answer; "silence" and "hang-up" are none. */
function answerOf(does: string, calls: number): number | "silence" | "hang-up" {
  if (does === "flaky") return calls <= 2 ? 500 : 200;
  if (does === "unavailable") return calls <= 2 ? 503 : 200;
  if (does === "refused") return 422;
  if (does === "broken") return 500;
  if (does === "busy") return isBusy() ? 429 : 200;
  if (does === "slow") return calls <= 1 ? "silence" : 200;
  if (does === "silent") return "silence";
  if (does === "hang-up") return calls <= 1 ? "hang-up" : 200;
  return 200;
}

function answer(request: IncomingMessage, body: string, response: ServerResponse): void {
  const task = String(request.headers["tidemill-task-id"]);
  const attempt = Number(request.headers["tidemill-attempt"]);
  const key = String(request.headers["idempotency-key"]);
  const does = (request.url ?? "").slice(1);
  const { n } = JSON.parse(body) as { n: number };
  write({ atMs: Date.now(), task, attempt, key, does, n });
  const calls = (seen.get(key) ?? 0) + 1;
  seen.set(key, calls);
  const status = answerOf(does, calls);
  if (status === "silence") return;
  if (status === "hang-up") {
    request.socket.destroy();
    return;
  }
  write({ atMs: Date.now(), task, attempt, status });
  response.writeHead(status, status === 429 ? { "retry-after": "1" } : {}).end(String(n));
}

const server = createServer((request, response) => {
  let body = "";
  request.setEncoding("utf8").on("data", (text: string) => {
    body += text;
  });
  request.on("end", () => answer(request, body, response));
});
server.listen(spec.port, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`${JSON.stringify({ event: "listening", port })}\n`);
});
