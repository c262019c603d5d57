import type { AuditedAct } from "../../api/types.ts";

type Words = (target: Readonly<Record<string, unknown>>) => string;

const dead =
  (verb: string): Words =>
  ({ ids, limit: _limit, ...filter }) => {
    const which = Object.entries(filter).map(([name, value]) => `${name} ${describeValue(value)}`);
    const what = ids === undefined ? which.join(", ") : `${describeValue(ids)} chosen`;
    return `${verb} dead letters: ${what}`;
  };
const named =
  (before: string, member = "name"): Words =>
  (target) =>
    `${before} ${describeValue(target[member])}`;

/** By the call, in words. Calls that are not here are told as they are. */
const WORDS: Readonly<Record<string, Words>> = {
  "POST /v1/tasks/:id/cancel": named("cancelled task", "id"),
  "POST /v1/tasks/:id/retry": named("retried task", "id"),
  "PUT /v1/queues/:name": named("defined queue"),
  "POST /v1/queues/:name/pause": named("paused queue"),
  "POST /v1/queues/:name/resume": named("resumed queue"),
  "PUT /v1/queues/:name/limits": named("limited queue"),
  "DELETE /v1/queues/:name/limits": named("reset the limits of queue"),
  "POST /v1/dead-letters/redrive": dead("redrove"),
  "POST /v1/dead-letters/purge": dead("purged"),
  "PUT /v1/dead-letters/:id/payload": named("edited the payload of task", "id"),
  "PUT /v1/schedules/:name": named("put schedule"),
  "DELETE /v1/schedules/:name": named("removed schedule"),
  "POST /v1/schedules/:name/run": named("ran schedule"),
  "POST /v1/schedules/:name/pause": named("paused schedule"),
  "POST /v1/schedules/:name/resume": named("resumed schedule"),
  "POST /v1/consumers/:name/pause": named("paused consumer"),
  "POST /v1/consumers/:name/resume": named("resumed consumer"),
  "POST /v1/consumers/:name/rewind": named("rewound consumer"),
  "POST /v1/consumers/:name/skip": named("skipped an event of consumer"),
  "POST /v1/consumers/:name/replay": named("replayed parked streams of consumer"),
  "POST /v1/consumers/:name/rebuild": named("began to rebuild"),
  "POST /v1/consumers/:name/rebuild/pause": named("paused the rebuild of"),
  "POST /v1/consumers/:name/rebuild/resume": named("resumed the rebuild of"),
  "POST /v1/consumers/:name/rebuild/compare": named("compared the rebuild of"),
  "POST /v1/consumers/:name/rebuild/swap": named("swapped in the rebuild of"),
  "POST /v1/consumers/:name/rebuild/rollback": named("rolled back the rebuild of"),
  "POST /v1/consumers/:name/rebuild/cancel": named("cancelled the rebuild of"),
  "POST /v1/consumers/:name/rebuild/forget": named("dropped the tables from before of"),
  "PUT /v1/tenants/:tenant/quota": named("changed the quota of", "tenant"),
  "DELETE /v1/tenants/:tenant/quota": named("lifted the quota of", "tenant"),
  "POST /v1/keys/:id/revoke": named("revoked key", "id"),
};

const IDENTITY = new Set(["name", "id", "tenant", "ids"]);

/** What was done, for people. */
export function describeAct({ call, target }: Pick<AuditedAct, "call" | "target">): string {
  const words = WORDS[call];
  if (words === undefined) {
    return call.replaceAll(/:(\w+)/g, (_, name: string) => describeValue(target[name]));
  }
  if (call.includes("/dead-letters/")) return words(target);
  const rest = Object.entries(target)
    .filter(([name]) => !IDENTITY.has(name))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const details = rest.map(([name, value]) => `${name} ${describeValue(value)}`);
  return details.length === 0 ? words(target) : `${words(target)} (${details.join(", ")})`;
}

function describeValue(value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (typeof value !== "object") return typeof value === "string" ? value : JSON.stringify(value);
  const { count, seconds = 1 } = value as { count?: number; seconds?: number };
  return count === undefined ? JSON.stringify(value) : `${count} per ${seconds} s`;
}

/** How it ended. */
export function describeStatus(status: number | undefined): {
  readonly text: string;
  readonly tone: "good" | "warn" | "bad";
} {
  if (status === undefined) return { text: "unknown", tone: "warn" };
  return status < 400
    ? { text: "done", tone: "good" }
    : { text: `refused, ${status}`, tone: "bad" };
}
