import { type Clock, pause, type WallClock } from "../../base/clock.ts";
import { ConfigError, InvalidInputError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { activeTrace, readTrace } from "../../base/trace-context.ts";
import type { Queryable } from "../../db/database.ts";
import { ClaimedTask } from "../../tasks/claimed-task.ts";
import type { TaskContext } from "../../tasks/context.ts";
import {
  checkHttpCall,
  type HttpSettings,
  type ResolvedCall,
  resolveCall,
} from "../../tasks/http-call.ts";
import { abandonFor, completed, failed, failedFor, type Outcome } from "../../tasks/outcome.ts";
import type { QueueDefinition, TaskHandler } from "../../tasks/queue.ts";
import { type Task, TaskTimeoutError } from "../../tasks/task.ts";
import { EgressError, EgressRefusedError } from "../egress/errors.ts";
import type { EgressGuard, EgressResponse } from "../egress/guard.ts";
import type { DeliveryMetrics } from "../metrics.ts";
import type { News } from "./breaker.ts";
import type { ResolvedHttpJobs } from "./options.ts";
import { requestOf } from "./request.ts";
import { toResult } from "./result.ts";
import { SigningKeys } from "./signing-keys.ts";
import { Standings } from "./standings.ts";
import { type Admission, type Place, Targets } from "./targets.ts";
import { type CallEnd, judge } from "./verdict.ts";

export interface HttpJobsParts {
  /** Closed with this. */
  readonly guard: EgressGuard;
  readonly clock: Clock;
  readonly wallClock: WallClock;
  readonly random: () => number;
  /** Seconds of waiting that weigh as much as one step of priority. */
  readonly agingSeconds: number;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

/** A call that may be made, and of whose places it has one. */
interface TargetPlace extends Place {
  readonly key: string;
}

/** How long a task may hold a slot while its host has no place for it. */
const WAIT_MS = 1_000;
/** One of high priority, for whom some slots are kept. */
const HIGH_WAIT_MS = 10_000;
/** And of each second of its timeout, so much. */
const TIMEOUT_PART_MS = 250;
/** How long a queue counts as one of many hosts after two of them were seen. */
const MANY_HOSTS_MS = 10 * 60_000;
/** After what failed on our side. */
const AGAIN_SECONDS = 1;

/**
 * Makes the calls of `http` queues: a handler of the engine, which claims, renews, ends and gives
 * back their tasks as those of any other handler, and whose slots are the pool of calls.
 *
 * What happens when the process dies:
 * - before the call: the lease ends, and the task is called for the first time;
 * - during the call, or after the answer and before the end is accepted: the lease ends, and the
 *   task is called again with the same Idempotency-Key. So a target is called at least once;
 * - while the end is written: one statement of the engine, so all of that or nothing.
 * A worker that was paused beyond the lease makes no call that it had not begun, and what it says
 * of the others comes too late and changes nothing.
 */
export class HttpJobs implements Disposable {
  readonly #options: ResolvedHttpJobs;
  readonly #parts: HttpJobsParts;
  readonly #targets: Targets;
  readonly #standings: Standings;
  readonly #keys: SigningKeys;
  /** By queue: whose places its last task wanted, and when those were others than before. */
  readonly #hosts = new Map<string, { readonly key: string; readonly variedAtMs: number }>();
  readonly #unwatch: () => void;
  #calling = 0;

  constructor(db: Queryable, options: ResolvedHttpJobs, parts: HttpJobsParts) {
    this.#options = options;
    this.#parts = parts;
    const { clock, random } = parts;
    this.#targets = new Targets({ rules: options.rules, now: () => clock.now(), random });
    this.#standings = new Standings({ agingSeconds: parts.agingSeconds });
    this.#keys = new SigningKeys(db, clock);
    this.#unwatch = parts.metrics.targetsBroken.ask(() => this.#targets.broken);
  }

  /** What runs tasks of the queue. Of those that are `isStored`, others own the definition. */
  handlerOf(queue: QueueDefinition, isStored: boolean): TaskHandler {
    const run: TaskHandler["run"] = (task, context) => this.#run(task, context);
    const handler = { queue, concurrency: undefined, isStored, run };
    if (queue.settings.http?.targetUrl === undefined) return handler;
    // All of one host: more than it has places for would only be sent away again.
    const { concurrency, rules } = this.#options;
    const concurrencyNow = (): number =>
      this.#isOfManyHosts(queue.name) ? concurrency : rules.callsMax;
    return { ...handler, concurrencyNow };
  }

  /** Whether its tasks have places of their own, as another tenant's have, or another target's. */
  #isOfManyHosts(queue: string): boolean {
    const { clock } = this.#parts;
    const variedAtMs = this.#hosts.get(queue)?.variedAtMs ?? -Infinity;
    return clock.now() - variedAtMs < MANY_HOSTS_MS;
  }

  #noteHost(queue: string, key: string): void {
    const known = this.#hosts.get(queue);
    if (known === undefined) this.#hosts.set(queue, { key, variedAtMs: -Infinity });
    else if (known.key !== key) {
      this.#hosts.set(queue, { key, variedAtMs: this.#parts.clock.now() });
    }
  }

  close(): void {
    this.#unwatch();
    this.#parts.guard.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #run(task: Task, { signal }: TaskContext): Promise<Outcome> {
    if (!(task instanceof ClaimedTask)) {
      throw new ConfigError("HTTP calls are made by workers with a database");
    }
    const settings = task.handler.queue.settings.http;
    // Others run it now, and this worker is about to notice. It has cost the task nothing.
    if (settings === undefined) return abandonFor(AGAIN_SECONDS);
    let call: ResolvedCall;
    try {
      const { http } = task.options;
      call = resolveCall(settings, http === undefined ? undefined : checkHttpCall(http));
    } catch (error) {
      // SQL may store anything. It would be the same again.
      return failed(messageOf(error), { retry: false });
    }
    const signing = await this.#secretsFor(task, call);
    if ("outcome" in signing) return signing.outcome;
    const { secrets } = signing;
    const key = `${task.tenant}\u0000${new URL(call.targetUrl).origin}`;
    this.#noteHost(task.queue, key);
    const admission = await this.#admit(key, task, signal);
    if (admission.kind === "call") {
      this.#standings.called(task);
      return await this.#call(
        task,
        { call, settings, secrets, place: { key, ...admission } },
        signal,
      );
    }
    const [ms, why] = admission.kind === "later" ? [admission.ms, admission.why] : [0, "full"];
    this.#standings.sentAway(task);
    this.#parts.metrics.jobsGivenBack.add(1, { why });
    return abandonFor(ms / 1_000);
  }

  async #secretsFor(
    task: ClaimedTask,
    call: ResolvedCall,
  ): Promise<{ readonly secrets: readonly string[] } | { readonly outcome: Outcome }> {
    try {
      return { secrets: await this.#keys.secretsOf(task.tenant, call.endpoint) };
    } catch (error) {
      // Somebody may put the endpoint yet; that the database is away is not the task's fault.
      if (error instanceof InvalidInputError) return { outcome: failed(error.message) };
      this.#parts.logger.warn({ error: messageOf(error) }, "could not read the secrets of calls");
      return { outcome: abandonFor(AGAIN_SECONDS) };
    }
  }

  async #admit(key: string, task: ClaimedTask, signal: AbortSignal): Promise<Admission> {
    const standing = this.#standings.of(task);
    const admission = this.#targets.enter(key, standing);
    if (admission.kind !== "wait") return admission;
    const { admitted, giveUp } = this.#targets.turn(key, standing);
    const over = new AbortController();
    const { settings } = task.handler.queue;
    const seconds = task.options.timeoutSeconds ?? settings.timeoutSeconds ?? Infinity;
    // Its time is for the call, of which it must have most.
    const most = standing.isHigh ? HIGH_WAIT_MS : WAIT_MS;
    const waitMs = Math.min(most, seconds * TIMEOUT_PART_MS);
    void pause(waitMs, this.#parts.clock, over.signal).then(giveUp);
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await admitted;
    } finally {
      over.abort();
      signal.removeEventListener("abort", giveUp);
    }
  }

  async #call(task: ClaimedTask, job: Job, signal: AbortSignal): Promise<Outcome> {
    const { clock, wallClock, metrics } = this.#parts;
    const { place, call } = job;
    // Whoever was paused meanwhile may not hold the lease any more.
    if (signal.aborted || clock.now() >= task.trustedUntilMs) {
      this.#targets.left(place.key, place, "unknown", 0);
      return abandonFor(AGAIN_SECONDS);
    }
    const startedMs = clock.now();
    this.#count(1);
    let news: News = "unknown";
    try {
      const { end, response } = await this.#exchange(task, job, signal);
      const now = new Date(wallClock());
      const verdict = judge(end, { expectedStatus: call.expectedStatus, now });
      news = verdict.news;
      metrics.jobCalls.add(1, { outcome: verdict.kind });
      if (verdict.kind === "retry") return failedFor(verdict.reason, verdict.afterSeconds);
      if (verdict.kind === "failed") return failed(verdict.reason, { retry: false });
      return completed(response === undefined ? undefined : toResult(response, job.settings));
    } finally {
      const tookMs = clock.now() - startedMs;
      this.#count(-1);
      metrics.jobDuration.observe(tookMs / 1_000);
      this.#heard(task, place, news, tookMs);
    }
  }

  #count(change: 1 | -1): void {
    this.#calling += change;
    this.#parts.metrics.jobsCalling.set(this.#calling);
  }

  #heard(task: ClaimedTask, place: TargetPlace, news: News, ms: number): void {
    const { logger } = this.#parts;
    const isBroken = this.#targets.left(place.key, place, news, ms);
    if (!isBroken) return;
    const [tenant, target] = place.key.split("\u0000");
    logger.warn({ tenant, target, task: task.id }, "a target is left alone for a while");
  }

  /** Rejects when somebody else ended the call: then nothing of it is to be told. */
  async #exchange(
    task: ClaimedTask,
    { call, secrets }: Job,
    signal: AbortSignal,
  ): Promise<{ readonly end: CallEnd; readonly response?: EgressResponse }> {
    const active = activeTrace();
    const stored = readTrace(task.traceParent, task.traceState);
    const trace = active.traceParent === undefined ? stored : active;
    try {
      const now = new Date(this.#parts.wallClock());
      const request = requestOf(task, call, { trace, secrets, now });
      const response = await this.#parts.guard.call(request, signal);
      const { status, headers } = response;
      return { end: { status, retryAfter: headers.get("retry-after") }, response };
    } catch (error) {
      if (error instanceof EgressRefusedError) {
        const isAnswered = error.reason === "redirect";
        return { end: { refused: messageOf(error), isAnswered } };
      }
      // The engine has written of the timeout itself; the target is to be blamed all the same.
      const isSlow = signal.aborted && signal.reason instanceof TaskTimeoutError;
      if (isSlow || (error instanceof EgressError && !signal.aborted)) {
        return { end: { failed: messageOf(error) } };
      }
      throw error;
    }
  }
}

interface Job {
  readonly call: ResolvedCall;
  readonly settings: HttpSettings;
  readonly secrets: readonly string[];
  readonly place: TargetPlace;
}
