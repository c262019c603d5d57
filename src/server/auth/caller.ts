import { ForbiddenError } from "../../base/errors.ts";

/** The parts of `worker`, for tokens that carry them one by one. */
export const WORKER_SCOPES = [
  "worker:claim",
  "worker:renew",
  "worker:finish",
  "worker:nack",
  "worker:abandon",
  "worker:subscribe",
] as const;

/**
 * `producer` makes and steers tasks, `worker` runs them, `read` looks at them, `admin` does all of
 * it and what concerns the whole cluster.
 */
export const SCOPES = ["producer", "worker", "read", "admin", ...WORKER_SCOPES] as const;
export type Scope = (typeof SCOPES)[number];

/** Who is calling. Made by an authenticator only; nothing in a request changes it. */
export interface Caller {
  readonly tenant: string;
  readonly scopes: ReadonlySet<Scope>;
  readonly queues: "all" | ReadonlySet<string>;
  /** Who holds the token, as whoever gave it says. */
  readonly subject: string;
  /** When the token stops being accepted here. */
  readonly expiresAt: Date | "never";
  /** Tells tokens apart in logs and limits. It is no secret. */
  readonly tokenId: string;
}

/** Each act and the scopes that allow it. `admin` allows all of them, and alone those without. */
const ALLOWED_BY = {
  "task.create": ["producer"],
  "task.read": ["producer", "read", "worker", ...WORKER_SCOPES],
  "task.cancel": ["producer"],
  "task.retry": ["producer"],
  "task.claim": ["worker", "worker:claim"],
  "task.renew": ["worker", "worker:renew"],
  "task.finish": ["worker", "worker:finish"],
  "task.nack": ["worker", "worker:nack"],
  "task.abandon": ["worker", "worker:abandon"],
  "queue.subscribe": ["worker", "worker:subscribe"],
  "queue.read": ["producer", "read", "worker"],
  "queue.change": [],
  "dead.read": ["producer", "read"],
  "dead.redrive": ["producer"],
  "dead.purge": ["producer"],
  "schedule.read": ["producer", "read"],
  "schedule.change": ["producer"],
  "webhook.read": ["producer", "read"],
  "webhook.change": ["producer"],
  "feed.read": ["read"],
  "cluster.read": [],
  "cluster.change": [],
} as const satisfies Readonly<Record<string, readonly Scope[]>>;

export type Act = keyof typeof ALLOWED_BY;
export const ACTS = Object.keys(ALLOWED_BY) as Act[];

/**
 * Whether the caller may do this to the queue. Without a queue the act concerns all of them, and a
 * caller who is limited to some may not: to forget the queue refuses, it does not leak.
 */
export function may(caller: Caller, act: Act, queue?: string): boolean {
  return hasScope(caller, act) && reaches(caller, queue);
}

/** Whether there is a queue to which the caller may do this; what is shown is to be filtered. */
export function mayOnSome(caller: Caller, act: Act): boolean {
  return hasScope(caller, act) && (caller.queues === "all" || caller.queues.size > 0);
}

/** Throws a ForbiddenError that names the scope or the queue that is missing. */
export function requireMay(caller: Caller, act: Act, queue?: string): void {
  if (!hasScope(caller, act)) {
    const [scope = "admin"] = ALLOWED_BY[act];
    throw new ForbiddenError(`this token lacks scope "${scope}", which ${act} needs`);
  }
  if (reaches(caller, queue)) return;
  throw new ForbiddenError(
    queue === undefined
      ? `this token is limited to some queues, and ${act} concerns all of them`
      : `this token is not for queue ${JSON.stringify(queue)}`,
  );
}

function hasScope({ scopes }: Caller, act: Act): boolean {
  const allowing: readonly Scope[] = ALLOWED_BY[act];
  return scopes.has("admin") || allowing.some((scope) => scopes.has(scope));
}

function reaches({ queues }: Caller, queue: string | undefined): boolean {
  return queues === "all" || (queue !== undefined && queues.has(queue));
}

const NAME_BYTES_MAX = 200;

/**
 * Whether it can name a tenant, a queue or a subject: what tasks accept, without blanks at the ends
 * and without invisible characters, by which two tenants could look like one.
 */
export function isName(value: unknown): value is string {
  return (
    typeof value === "string" &&
    value !== "" &&
    value === value.trim() &&
    Buffer.byteLength(value) <= NAME_BYTES_MAX &&
    !/[\p{C}\p{Zl}\p{Zp}]/u.test(value)
  );
}
