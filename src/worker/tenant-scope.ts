import { CommitUnknownError, InvalidInputError } from "../base/errors.ts";
import type { Store } from "../db/database.ts";
import { EgressRefusedError } from "../delivery/egress/errors.ts";
import { SubscriptionAdmin } from "../delivery/notices/subscription-admin.ts";
import { type UrlGuard, WebhookAdmin } from "../delivery/webhook-admin.ts";
import { type ResumeOptions, ScheduleAdmin } from "../schedules/admin.ts";
import type { Schedule, ScheduleFiring, ScheduleOptions } from "../schedules/schedule.ts";
import {
  type DeadLetterFilter,
  type DeadLetterGroupOptions,
  type DeadLetterGroups,
  DeadLetters,
} from "../tasks/dead-letters.ts";
import type { EncodedTask } from "../tasks/encode.ts";
import { type EnqueueContext, enqueueTasks } from "../tasks/enqueue.ts";
import { checkHttpCall, type HttpCall } from "../tasks/http-call.ts";
import type { NewTask } from "../tasks/new-task.ts";
import { type Amount, amountOf } from "../tasks/quota.ts";
import type { QuotaKeeper, Settle } from "../tasks/quota-keeper.ts";
import { type EndOptions, hasEnded, type ResultWaiter } from "../tasks/results.ts";
import type { TaskRow } from "../tasks/sql/inspect.ts";
import type { TaskPage } from "../tasks/sql/list.ts";
import {
  type AdminChannels,
  type EndedBefore,
  type ListTasksOptions,
  TaskAdmin,
  type WhyOptions,
} from "../tasks/task-admin.ts";
import type { TaskFailure } from "../tasks/view.ts";

/** What a scope acts through; the store is the tenant's part of the database, where it has one. */
export interface ScopeContext {
  readonly store: Store;
  readonly enqueue: EnqueueContext;
  readonly results: ResultWaiter;
  readonly channels: AdminChannels;
  readonly onEnqueued: (queue: string, count: number) => void;
  /** Queues that the tenant may name before anybody defined them. */
  readonly queuesMax: number;
  /** Without one, nobody has a quota. */
  readonly quotas: QuotaKeeper | undefined;
  /** Without one, any address of a webhook is stored. */
  readonly urlGuard: UrlGuard | undefined;
  /** Without one, any target of a task is stored. */
  readonly targetGuard: UrlGuard | undefined;
}

/** Whose scope it is. `queues` are those that the tenant's caller is for. */
export interface ScopeOptions {
  readonly tenant: string;
  readonly queues: "all" | ReadonlySet<string>;
}

type Unscoped<T> = Omit<T, "tenant" | "queues">;

/**
 * What one tenant may do, for servers that act for many: every call names the tenant, and runs
 * behind the wall if there is one. What belongs to another tenant, or to a queue that the caller is
 * not for, is not found.
 */
export class TenantScope {
  readonly tenant: string;
  /** Each call names the tenant again. */
  readonly webhooks: WebhookAdmin;
  /** The same. */
  readonly subscriptions: SubscriptionAdmin;
  readonly #scope: { readonly tenant: string; readonly queues?: readonly string[] };
  readonly #context: ScopeContext;
  readonly #enqueue: EnqueueContext;
  readonly #tasks: TaskAdmin;
  readonly #dead: DeadLetters;
  readonly #schedules: ScheduleAdmin;

  constructor(context: ScopeContext, { tenant, queues }: ScopeOptions) {
    const { store, channels } = context;
    this.tenant = tenant;
    this.#scope = { tenant, ...(queues === "all" ? {} : { queues: [...queues] }) };
    this.#context = context;
    this.#enqueue = { ...context.enqueue, db: store };
    this.#tasks = new TaskAdmin(store, channels);
    this.#dead = new DeadLetters(store, channels);
    this.webhooks = new WebhookAdmin(store, context.urlGuard);
    this.subscriptions = new SubscriptionAdmin(store, context.urlGuard);
    this.#schedules = this.#schedulesOver(this.#enqueue);
  }

  #schedulesOver(enqueue: EnqueueContext): ScheduleAdmin {
    const { channels, onEnqueued } = this.#context;
    return new ScheduleAdmin(enqueue, channels.changes, (queue) => onEnqueued(queue, 1));
  }

  /**
   * All of them or none, durably when this resolves; their ids in order. A queue that nobody
   * defined is introduced by its first task.
   */
  async enqueue(queue: string, tasks: readonly Unscoped<NewTask>[]): Promise<string[]> {
    const { tenant } = this;
    const { queuesMax } = this.#context;
    for (const { http } of tasks) this.#checkTarget(http);
    await this.#enqueue.directory.findOrIntroduce(queue, { tenant, queuesMax });
    const own = tasks.map((task) => ({ ...task, tenant }));
    const ids = await enqueueTasks(this.#metered(), queue, own, {});
    this.#context.onEnqueued(queue, ids.length);
    return ids;
  }

  /** What can never be called is refused now, where somebody hears of it. */
  #checkTarget(http: HttpCall | undefined): void {
    const { targetGuard } = this.#context;
    if (targetGuard === undefined || http?.targetUrl === undefined) return;
    const { targetUrl = "" } = checkHttpCall(http);
    try {
      targetGuard.check(targetUrl);
    } catch (error) {
      if (!(error instanceof EgressRefusedError)) throw error;
      throw new InvalidInputError(`http.targetUrl cannot be called: ${error.message}`);
    }
  }

  /** The directory would help with names of queues, which are those of other tenants, too. */
  async #requireQueue(queue: unknown): Promise<void> {
    if (typeof queue !== "string" || (await this.#enqueue.directory.has(queue))) return;
    throw new InvalidInputError(`there is no queue ${JSON.stringify(queue)}`);
  }

  #metered(): EnqueueContext {
    const { tenant } = this;
    const { quotas } = this.#context;
    if (quotas === undefined || !this.#isMetered) return this.#enqueue;
    const meter = async (encoded: readonly EncodedTask[]): Promise<Settle> =>
      (await quotas.admit(tenant, amountOf(encoded))) ?? (() => {});
    return { ...this.#enqueue, meter };
  }

  get #isMetered(): boolean {
    return this.#context.quotas?.isMetered(this.tenant) === true;
  }

  /** Lets so much come back, as new tasks are let in, or throws. */
  async #admitted<T>(amount: Amount, act: () => Promise<T>): Promise<T> {
    const settle = await this.#context.quotas?.admit(this.tenant, amount);
    let isStored = true;
    try {
      return await act();
    } catch (error) {
      isStored = error instanceof CommitUnknownError;
      throw error;
    } finally {
      settle?.(isStored);
    }
  }

  async task(id: string): Promise<TaskRow> {
    return await this.#tasks.find(id, this.#scope);
  }

  /** A page, having looked at no more than so many rows of each table. */
  async tasks(options: Unscoped<ListTasksOptions>, look: number): Promise<TaskPage> {
    return await this.#tasks.findPage({ ...options, ...this.#scope }, look);
  }

  /** The task when it has ended, or as it is when the time is over. */
  async end(id: string, options: Unscoped<EndOptions>): Promise<TaskRow> {
    return await this.#context.results.end(id, { ...options, ...this.#scope });
  }

  async failures(id: string): Promise<TaskFailure[]> {
    return await this.#tasks.failures(id, this.#scope);
  }

  async why(id: string, options: Unscoped<WhyOptions> = {}): Promise<string> {
    return await this.#tasks.why(id, { ...options, ...this.#scope });
  }

  async cancel(id: string, reason?: string): Promise<"cancelled" | "cancelling"> {
    return await this.#tasks.cancel(id, {
      ...this.#scope,
      ...(reason === undefined ? {} : { reason }),
    });
  }

  async retry(id: string): Promise<void> {
    const retry = (): Promise<void> => this.#tasks.retry(id, this.#scope);
    if (!this.#isMetered) return await retry();
    const row = await this.task(id);
    // One that still waits is there already.
    await (hasEnded(row) ? this.#admitted(amountOfRow(row), retry) : retry());
  }

  /** Deletes tasks that ended before an instant, at most so many, and tells which instant. */
  async forgetEnded(
    edge: EndedBefore,
    limit: number,
  ): Promise<{ readonly deleted: number; readonly edge: Date }> {
    return await this.#tasks.forgetEnded(edge, limit, this.#scope);
  }

  async redrive(filter: Unscoped<DeadLetterFilter>, limit: number): Promise<number> {
    const which = { ...filter, ...this.#scope };
    if (!this.#isMetered) return await this.#dead.redrive(which, { limit });
    const amount = await this.#dead.weigh(which, limit);
    if (amount.tasks === 0) return 0;
    // Those that died meanwhile were not let in.
    const most = { limit: amount.tasks };
    return await this.#admitted(amount, () => this.#dead.redrive(which, most));
  }

  /** How many a redrive would take, counted up to so many, and until when that was so. */
  async countDead(
    filter: Unscoped<DeadLetterFilter>,
    max: number,
  ): Promise<{ readonly count: number; readonly at: Date }> {
    return await this.#dead.count({ ...filter, ...this.#scope }, max);
  }

  /** What they died of, of one queue or of all that the caller is for. */
  async deadLetterGroups(filter: Unscoped<DeadLetterGroupOptions>): Promise<DeadLetterGroups> {
    return await this.#dead.groups({ ...filter, ...this.#scope });
  }

  async purge(filter: Unscoped<DeadLetterFilter>, limit: number): Promise<number> {
    return await this.#dead.purge({ ...filter, ...this.#scope }, { limit });
  }

  async editDeadLetter(id: string, payload: unknown, contentType?: string): Promise<void> {
    const type = contentType === undefined ? {} : { contentType };
    await this.#dead.edit(id, payload, { ...this.#scope, ...type });
  }

  /** By name, those above `after`. */
  async schedules(after: string | undefined, limit: number): Promise<Schedule[]> {
    const from = after === undefined ? {} : { after };
    return await this.#schedules.list({ ...this.#scope, ...from, limit });
  }

  async schedule(name: string): Promise<Schedule> {
    return await this.#schedules.get(name, this.#scope);
  }

  async firings(name: string, limit: number): Promise<ScheduleFiring[]> {
    return await this.#schedules.firings(name, { ...this.#scope, limit });
  }

  async putSchedule(name: string, options: Unscoped<ScheduleOptions>): Promise<Schedule> {
    const { tenant, ...queues } = this.#scope;
    this.#checkTarget(options.http);
    await this.#requireQueue(options.queue);
    return await this.#schedules.put(name, { ...options, tenant }, queues);
  }

  async removeSchedule(name: string): Promise<void> {
    await this.#schedules.remove(name, this.#scope);
  }

  async pauseSchedule(name: string): Promise<void> {
    await this.#schedules.pause(name, this.#scope);
  }

  async resumeSchedule(name: string, options: Unscoped<ResumeOptions>): Promise<void> {
    await this.#schedules.resume(name, { ...options, ...this.#scope });
  }

  async runSchedule(name: string): Promise<{ readonly id: string; readonly queue: string }> {
    if (!this.#isMetered) return await this.#schedules.runNow(name, this.#scope);
    const { payload } = await this.schedule(name);
    const amount = amountOf([{ payload: JSON.stringify(payload) ?? "" }]);
    // Let in before: nobody is to wait for room with a connection in hand.
    const marking = { ...this.#enqueue, meter: () => Promise.resolve(() => {}) };
    return await this.#admitted(amount, () =>
      this.#schedulesOver(marking).runNow(name, this.#scope),
    );
  }
}

const amountOfRow = ({ payload, bytes }: TaskRow): Amount => ({
  tasks: 1,
  bytes: Buffer.byteLength(payload ?? "") + (bytes?.length ?? 0),
});
