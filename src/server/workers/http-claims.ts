import type { Clock } from "../../base/clock.ts";
import { pause } from "../../base/clock.ts";
import { UnavailableError } from "../../base/errors.ts";
import { JsonText } from "../../base/json-text.ts";
import { uuidOf } from "../../base/uuid.ts";
import type { ClaimedTask } from "../../tasks/claimed-task.ts";
import { abandon, completed, failed, nack, nackByBackoff } from "../../tasks/outcome.ts";
import { LeaseLostError } from "../../tasks/task.ts";
import { type Act, type Caller, may } from "../auth/caller.ts";
import type {
  ClaimDesk,
  ClaimRequest,
  ClaimToken,
  Failure,
  HeldTask,
  Nack,
  NackAnswer,
  NoClaim,
} from "../http/claim-desk.ts";
import type { ActDone } from "./act-answers.ts";
import type { Assignment } from "./assignment.ts";
import type { Desk, RemoteWorker } from "./desk.ts";
import type { Order } from "./order-book.ts";
import type { RemoteAct, RemoteActs } from "./remote-acts.ts";

export interface HttpClaimsOptions {
  readonly desk: Desk;
  readonly acts: RemoteActs;
  readonly clock: Clock;
  /** Of a claim that does not say. */
  readonly leaseSeconds: number;
}

/** How long a claim that does not wait may take. */
const LOOK_MS = 5_000;
/**
 * How long a claim waits, also one that does not, of queues that were not asked for here lately:
 * keys are given to servers that have somebody for them, which the cluster must hear first.
 */
const NEWCOMER_MS = 1_500;
/** Payloads in one answer; a first that is larger goes alone. */
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
const NO_REASON = "nack without a reason";
const NOTHING = (): void => {};

/**
 * Claims of callers that come, go, and come back to any server. An order with a deadline gets them
 * tasks; what it was served with is handed over: the lease is the caller's, nobody renews it, and
 * this server knows nothing of it any more. Every act goes by its token.
 */
export class HttpClaims implements ClaimDesk {
  readonly #options: HttpClaimsOptions;
  // AbortSignal.any with a signal that lives as long as the server would keep a bit of every claim.
  readonly #waiting = new Set<AbortController>();
  #isDraining = false;

  constructor(options: HttpClaimsOptions) {
    this.#options = options;
  }

  /** Nobody waits here any more. */
  drain(): void {
    this.#isDraining = true;
    for (const over of this.#waiting) over.abort();
  }

  async claim(request: ClaimRequest, signal: AbortSignal): Promise<HeldTask[]> {
    const { desk, leaseSeconds } = this.#options;
    await desk.handle(request.queues, request.tenant);
    const served = await this.#order(request, signal);
    if (signal.aborted) {
      for (const one of served) desk.reassign(one);
      return [];
    }
    const [taken, rest] = fitting(served);
    for (const one of rest) desk.reassign(one);
    const holder = holderOf(request.tenant, request.holder);
    const seconds = request.leaseSeconds ?? leaseSeconds;
    const handed = await desk.custody.handOver(taken, { holder, seconds });
    return handed.map(({ task, until: leaseUntil }) => {
      // By the clock of the database: every claim of this server lasts so long.
      const claimedAt = new Date(task.claim.until.getTime() - leaseSeconds * 1000);
      return toHeld(task, { holder, claimedAt, leaseUntil });
    });
  }

  /** What the order was served with; nothing when there was nothing in time. */
  async #order(request: ClaimRequest, signal: AbortSignal): Promise<Assignment[]> {
    const { desk, clock } = this.#options;
    const claimant = new Claimant(request.tenant);
    const isKnown = desk.isKnownFor(request.queues, request.tenant);
    const waitMs = Math.max(request.waitMs, isKnown ? 0 : NEWCOMER_MS);
    const order = desk.order(claimant, request.queues, request.count);
    const over = new AbortController();
    const stop = (): void => over.abort();
    if (signal.aborted || this.#isDraining) stop();
    signal.addEventListener("abort", stop);
    this.#waiting.add(over);
    try {
      if (waitMs > 0) {
        await Promise.race([claimant.served, pause(waitMs, clock, over.signal)]);
      }
      if (request.waitMs === 0 && order.tasks.length === 0 && claimant.tasks.length === 0) {
        const late = pause(LOOK_MS, clock, over.signal).then(() => "late" as const);
        const looked = await Promise.race([claimant.served, desk.looked(), late]);
        if (looked === "late" && !over.signal.aborted) {
          throw new UnavailableError("could not look for tasks in time");
        }
      }
      if (order.tasks.length > 0) await claimant.served; // It is, in this round.
      return claimant.tasks;
    } finally {
      signal.removeEventListener("abort", stop);
      this.#waiting.delete(over);
      stop();
      if (claimant.tasks.length === 0) desk.withdraw(order);
    }
  }

  async complete(caller: Caller, token: ClaimToken, result: JsonText | undefined): Promise<void> {
    await this.#end({ caller, needs: "task.finish" }, token, completed(result));
  }

  async fail(caller: Caller, token: ClaimToken, { reason, retry }: Failure): Promise<void> {
    const outcome = failed(orNoReason(reason), { retry });
    await this.#end({ caller, needs: "task.finish" }, token, outcome);
  }

  async nack(caller: Caller, token: ClaimToken, given: Nack): Promise<NackAnswer> {
    const reason = orNoReason(given.reason ?? "");
    const { delaySeconds: delay } = given;
    const outcome = delay === undefined ? nackByBackoff(reason) : nack(Math.max(0, delay), reason);
    const who = { caller, needs: "task.nack" } as const;
    const { state, delaySeconds } = await this.#end(who, token, outcome);
    return { delaySeconds, isDead: state === "dead" };
  }

  async abandon(caller: Caller, token: ClaimToken): Promise<void> {
    await this.#end({ caller, needs: "task.abandon" }, token, abandon());
  }

  async extend(caller: Caller, token: ClaimToken, seconds: number | undefined): Promise<Date> {
    const act = { kind: "extend", seconds: seconds ?? this.#options.leaseSeconds } as const;
    const { until } = await this.#act({ caller, needs: "task.renew" }, token, act);
    if (until === undefined) throw new LeaseLostError(token);
    return until;
  }

  async find(tenant: string, holder: string, taskId: string): Promise<ClaimToken | NoClaim> {
    if (!/^[1-9]\d{0,17}$/.test(taskId)) return "not-found";
    const claim = await this.#options.desk.tokens.claimOf(taskId, tenant);
    if (claim === undefined) return "not-found";
    // In a pack that a worker holds: nobody was handed it.
    if (claim === "running") return "not-owner";
    if (typeof claim === "string") return "not-in-progress";
    return claim.holder === holderOf(tenant, holder) ? claim.token : "not-owner";
  }

  #end(who: Who, token: ClaimToken, outcome: OutcomeOfAct): Promise<ActDone> {
    return this.#act(who, token, { kind: "end", outcome });
  }

  #act({ caller, needs }: Who, token: ClaimToken, act: RemoteAct): Promise<ActDone> {
    const { tenant } = caller;
    const actor = { tenant, may: (queue: string) => may(caller, needs, queue) };
    return new Promise((resolve, reject) => {
      this.#options.acts.act(actor, token, act, (answer) => {
        if (answer instanceof Error) reject(answer);
        else resolve(answer);
      });
    });
  }
}

/** Who acts, and what they must be allowed for it. */
interface Who {
  readonly caller: Caller;
  readonly needs: Act;
}

type OutcomeOfAct = Extract<RemoteAct, { kind: "end" }>["outcome"];

/** Waits for one order, once. */
class Claimant implements RemoteWorker {
  readonly tenant: string;
  readonly served: Promise<void>;
  tasks: Assignment[] = [];
  #resolve: () => void = NOTHING;

  constructor(tenant: string) {
    this.tenant = tenant;
    this.served = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  onTasks(order: Order<Assignment>): void {
    this.tasks = order.tasks.filter((one) => one.isRunning);
    this.#resolve();
  }

  onLost(assignment: Assignment): void {
    this.onGone(assignment);
  }

  onGone(assignment: Assignment): void {
    this.tasks = this.tasks.filter((one) => one !== assignment);
  }

  onRenewed(): void {
    // It is told when the task is handed over.
  }
}

/** The same for the same caller at every server. */
const holderOf = (tenant: string, holder: string): string =>
  uuidOf(JSON.stringify([tenant, holder]));

const orNoReason = (reason: string): string => (reason.trim() === "" ? NO_REASON : reason);

/** As many as fit into an answer, and the others. */
function fitting(assignments: readonly Assignment[]): [Assignment[], Assignment[]] {
  let bytes = 0;
  let count = 0;
  for (const { task } of assignments) {
    bytes += task.payloadBytes.length;
    if (count > 0 && bytes > ANSWER_BYTES_MAX) break;
    count += 1;
  }
  return [assignments.slice(0, count), assignments.slice(count)];
}

function toHeld(
  task: ClaimedTask,
  held: Pick<HeldTask, "holder" | "claimedAt" | "leaseUntil">,
): HeldTask {
  const { id, queue, kind, bytes, contentType, priority, tenant, partitionKey } = task;
  const { attempt, maxAttempts, createdAt, runAt, token, options } = task;
  return {
    id,
    queue,
    kind,
    payload: bytes === undefined ? new JsonText(task.payloadBytes.toString()) : undefined,
    bytes,
    contentType,
    priority,
    tenant,
    partitionKey,
    attempt,
    maxAttempts,
    createdAt,
    runAt,
    traceParent: options.traceParent,
    traceState: options.traceState,
    token,
    ...held,
    webhook: options.webhook,
  };
}
