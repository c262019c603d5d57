import type { Clock } from "../base/clock.ts";
import type { Database } from "../db/database.ts";
import type { Rare, TaskFacts } from "./claimed-row.ts";
import { Claim, ClaimedTask } from "./claimed-task.ts";
import type { Executor } from "./executor.ts";
import type { PackFinisher } from "./pack-finisher.ts";
import {
  adoptTasks,
  type EndedClaim,
  extendHeld,
  findClaimOf,
  findEndedClaims,
  findHeld,
  findWhereabouts,
  type HeldRow,
  type HeldUntil,
  handOverTasks,
  keepTasks,
  type TenantToken,
} from "./sql/by-token.ts";
import { findTasks } from "./sql/inspect.ts";
import { findOwn, saveProgress } from "./sql/lease.ts";
import { openPacksByToken } from "./sql/open-packs.ts";
import { LeaseLostError, type LeaseToken, type TaskState } from "./task.ts";

export interface ClaimTokensOptions {
  readonly workerId: string;
  readonly leaseSeconds: number;
  readonly packs: PackFinisher;
  readonly clock: Clock;
  /** Tasks were adopted, which may have been cancelled meanwhile. */
  readonly onAdopted: () => void;
}

const TRUST = 0.9;

/**
 * Tasks that somebody outside holds, found by their tokens: whichever worker claimed them, they may
 * be ended, kept or adopted here. The database compares the token each time, so a claim that is
 * over is refused, and of two who act by the same token one is first.
 */
export class ClaimTokens {
  readonly #db: Database;
  readonly #executor: Executor;
  readonly #options: ClaimTokensOptions;

  constructor(db: Database, executor: Executor, options: ClaimTokensOptions) {
    this.#db = db;
    this.#executor = executor;
    this.#options = options;
  }

  /** One for each token: the task that is held by it. */
  async find(tokens: readonly TenantToken[]): Promise<(HeldRow | undefined)[]> {
    return await this.#inRows(tokens, (some) => findHeld(this.#db, some));
  }

  /** One for each token: the task, whose lease is this worker's from now on. */
  async adopt(tokens: readonly TenantToken[], seconds: number): Promise<(HeldRow | undefined)[]> {
    const { workerId, onAdopted } = this.#options;
    const adopted = await this.#inRows(tokens, (some) =>
      adoptTasks(this.#db, some, { workerId, seconds }),
    );
    onAdopted();
    return adopted;
  }

  /** Tasks of this worker are its own again, if others have adopted them meanwhile. */
  async keep(tokens: readonly TenantToken[], seconds: number): Promise<void> {
    const { workerId } = this.#options;
    await keepTasks(this.#db, tokens, { workerId, seconds });
  }

  /** Places of those that this worker holds, and no other has adopted or ended. */
  async findOwn(tokens: readonly LeaseToken[]): Promise<ReadonlySet<number>> {
    return await findOwn(this.#db, tokens, this.#options.workerId);
  }

  /** What is not found may be in a pack that another worker has not opened. */
  async #inRows(
    tokens: readonly TenantToken[],
    askOf: (some: readonly TenantToken[]) => Promise<(HeldRow | undefined)[]>,
  ): Promise<(HeldRow | undefined)[]> {
    const ask = async (some: readonly TenantToken[]): Promise<(HeldRow | undefined)[]> =>
      theirOwn(some, await askOf(some));
    const found = await ask(tokens);
    const places = [...tokens.keys()].filter(
      (place) => found[place] === undefined && tokens[place]?.generation === 1,
    );
    const missing = places.flatMap((place) => tokens[place] ?? []);
    if (missing.length === 0 || (await openPacksByToken(this.#db, missing)) === 0) return found;
    const more = await ask(missing);
    for (const [at, place] of places.entries()) found[place] = more[at];
    return found;
  }

  /**
   * It runs here from now on, as any task of this worker: renewed, timed out, cancelled, ended.
   * Undefined when this worker stops, or runs nothing of its queue.
   */
  hold(row: HeldRow, leaseSeconds = this.#options.leaseSeconds): ClaimedTask | undefined {
    const handler = this.#executor.lines.handlerOf(row.queue);
    if (handler === undefined) return undefined;
    const claim = new Claim(row.claim_id);
    claim.until = row.until;
    claim.open = Infinity; // It has other tasks, elsewhere: its row in the ledger must not go.
    const nowMs = this.#options.clock.now();
    const sources = { laneOf: () => undefined, handlerOf: () => handler };
    const task = new ClaimedTask(new AdoptedRow(row), sources, claim, {
      claimedAtMs: nowMs,
      trustedUntilMs: nowMs + this.#options.leaseSeconds * 1000 * TRUST,
      isHeldHead: false,
      ranMs: row.ran_seconds * 1000,
    });
    const isLong = leaseSeconds > this.#options.leaseSeconds && !isTimed(task);
    if (isLong) task.renewed({ seconds: leaseSeconds });
    return this.#executor.adopt(task) ? task : undefined;
  }

  /**
   * Somebody outside holds them from now on, for so long, and nobody renews them. One for each:
   * until when, or undefined for one that is not ours any more.
   */
  async handOver(
    tasks: readonly ClaimedTask[],
    given: { readonly holder: string; readonly seconds: number },
  ): Promise<(Date | undefined)[]> {
    await this.#open(tasks);
    return await handOverTasks(this.#db, tasks.map(toToken), given);
  }

  /**
   * They are held for so long at least, unless their time is up before. Tasks that may take any
   * time are also renewed for so long.
   */
  async lengthen(tasks: readonly ClaimedTask[], seconds: number): Promise<void> {
    const { clock } = this.#options;
    await this.#open(tasks);
    const sentAtMs = clock.now();
    const held = await extendHeld(this.#db, tasks.map(toToken), seconds);
    for (const [place, task] of tasks.entries()) {
      const lease = held[place];
      if (lease === undefined) continue; // Whoever renews it finds out why.
      task.renewed({
        atMs: sentAtMs,
        trustedUntilMs: sentAtMs + lease.seconds * 1000 * TRUST,
        until: lease.until,
        ...(isTimed(task) ? {} : { seconds }),
      });
    }
  }

  async #open(tasks: readonly ClaimedTask[]): Promise<void> {
    const { packs } = this.#options;
    const taken = new Set(tasks.flatMap(({ pack }) => pack ?? []));
    for (const { queue } of taken) packs.use.opened(queue);
    await packs.open(taken, this.#db);
  }

  /** Throws LeaseLostError; also when its time is up, and nobody has taken the task from it yet. */
  async extend(token: TenantToken, seconds: number): Promise<HeldUntil> {
    const [held] = await extendHeld(this.#db, [token], seconds);
    if (held === undefined || held.seconds <= 0) throw new LeaseLostError(token);
    return held;
  }

  /** Throws LeaseLostError. */
  async progress(token: LeaseToken, json: string): Promise<void> {
    if (!(await saveProgress(this.#db, token, json))) throw new LeaseLostError(token);
  }

  /** One for each token: where its task is, if the claim is over and that is known. */
  async ended(tokens: readonly TenantToken[]): Promise<(EndedClaim | undefined)[]> {
    return theirOwn(tokens, await findEndedClaims(this.#db, tokens));
  }

  /** Of the tasks that the tenant has: whether they have ended. */
  async whereabouts(
    ids: readonly string[],
    tenant: string,
  ): Promise<ReadonlyMap<string, "live" | "over">> {
    return await findWhereabouts(this.#db, ids, tenant);
  }

  /** Who holds the task by which claim, or where it is. Undefined: the tenant has no such task. */
  async claimOf(
    taskId: string,
    tenant: string,
  ): Promise<{ readonly token: LeaseToken; readonly holder: string } | TaskState | undefined> {
    const row = await findClaimOf(this.#db, taskId, tenant);
    if (row === undefined) return (await findTasks(this.#db, [taskId], { tenant }))[0]?.state;
    const { generation, claim_id: claimId, leased_by: holder } = row;
    return { token: { taskId, generation, claimId }, holder };
  }
}

/**
 * The statements compare the tenant already. But they run as the engine, before the second wall,
 * and one claim may have tasks of several tenants, who then know the same claim id.
 */
const theirOwn = <Row extends { readonly tenant: string }>(
  tokens: readonly TenantToken[],
  rows: readonly (Row | undefined)[],
): (Row | undefined)[] =>
  rows.map((row, place) => (row?.tenant === tokens[place]?.tenant ? row : undefined));

const isTimed = ({ options, handler }: ClaimedTask): boolean =>
  (options.timeoutSeconds ?? handler.queue.settings.timeoutSeconds ?? null) !== null;

const toToken = ({ token, tenant }: ClaimedTask): TenantToken => ({ ...token, tenant });

/** Its key is left out: until it ends, nobody claims from its lane who does not hold all of it. */
class AdoptedRow implements TaskFacts {
  readonly partitionKey = undefined;
  readonly payload = "";
  readonly #row: HeldRow;

  constructor(row: HeldRow) {
    this.#row = row;
  }

  get id(): string {
    return this.#row.id;
  }
  get lane(): number {
    return this.#row.lane;
  }
  get claimOrder(): number {
    return Number(this.#row.claim_order ?? this.#row.id);
  }
  get attempt(): number {
    return this.#row.attempt;
  }
  get generation(): number {
    return this.#row.generation;
  }
  get maxAttempts(): number {
    return this.#row.max_attempts;
  }
  get runAtMs(): number {
    return this.#row.run_at.getTime();
  }
  get owner(): { queue: string; tenant: string; priority: number } {
    const { queue, tenant, priority } = this.#row;
    return { queue, tenant, priority };
  }
  get rare(): Rare {
    const { created_at, on_probation, kind, content_type, options } = this.#row;
    return {
      createdAtMs: created_at.getTime(),
      isOnProbation: on_probation,
      kind: kind ?? undefined,
      contentType: content_type ?? undefined,
      bytes: undefined,
      options: options ?? undefined,
    };
  }
}
