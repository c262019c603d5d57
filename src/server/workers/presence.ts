import type { TenantService } from "../../cluster/sql/workers.ts";

/** Whoever reconnects by then was never away. */
export const LINGER_MS = 3_000;
/** How long workers that are busy need not order; it doubles each time they come back. */
export const PATIENCE_MIN_MS = 5_000;
export const PATIENCE_MAX_MS = 300_000;
/** When nothing was ordered, and nothing ran, for so long. */
export const FORGET_MS = 60_000;
/** In the place of a queue: all that are handled. No queue has this name. */
export const ALL_QUEUES = "";

/** One queue of one tenant: asked for, or idle. */
export interface Mark {
  readonly state: "asked" | "idle";
  /** When an order last stood. */
  readonly orderedAtMs: number;
  /** When a task last ran. */
  readonly ranAtMs: number;
  readonly patienceMs: number;
}

export interface Sight {
  readonly nowMs: number;
  readonly isOrdered: boolean;
  readonly isRunning: boolean;
}

/** What becomes of a mark. Undefined: nothing is known of the queue any more. */
export function nextMark(mark: Mark | undefined, sight: Sight): Mark | undefined {
  const { nowMs, isOrdered, isRunning } = sight;
  const ranAtMs = isRunning ? nowMs : (mark?.ranAtMs ?? -Infinity);
  if (isOrdered) {
    const before = mark?.patienceMs ?? PATIENCE_MIN_MS;
    const patienceMs = mark?.state === "idle" ? Math.min(2 * before, PATIENCE_MAX_MS) : before;
    return { state: "asked", orderedAtMs: nowMs, ranAtMs, patienceMs };
  }
  if (mark === undefined) return undefined;
  const quietMs = nowMs - Math.max(mark.orderedAtMs, ranAtMs);
  if (mark.state === "idle") return quietMs >= FORGET_MS ? undefined : { ...mark, ranAtMs };
  const isLate = isRunning ? nowMs - mark.orderedAtMs >= mark.patienceMs : quietMs >= LINGER_MS;
  return { ...mark, ranAtMs, state: isLate ? "idle" : "asked" };
}

/** What is seen of a queue of a tenant now. */
export interface Seeing {
  readonly nowMs: number;
  isOrdered(queue: string, tenant: string): boolean;
  isRunning(queue: string, tenant: string): boolean;
}

/**
 * For which tenants a server has workers, and of which queues, as others are to know. Those who
 * come are told of at once; those who are away for a moment are not.
 */
export class Presence {
  readonly #tenants = new Map<string, Map<string, Mark>>();
  /** As it was last said to the others. */
  readonly #said = new Map<string, string>();
  readonly #changed = new Set<string>();

  /** An order names these queues. True when there is something to say. */
  ordered(tenant: string, queues: Iterable<string>, nowMs: number): boolean {
    let marks = this.#tenants.get(tenant);
    if (marks === undefined) {
      marks = new Map();
      this.#tenants.set(tenant, marks);
    }
    for (const queue of queues) {
      const mark = marks.get(queue);
      const sight = { nowMs, isOrdered: true, isRunning: false };
      const next = nextMark(mark, sight);
      if (next !== undefined) marks.set(queue, next);
      if (mark?.state !== "asked") this.#changed.add(tenant);
    }
    return this.#changed.has(tenant);
  }

  /** Whether the queues were ordered for the tenant not long ago. */
  knows(tenant: string, queues: readonly string[]): boolean {
    const marks = this.#tenants.get(tenant);
    return marks !== undefined && queues.every((queue) => marks.has(queue));
  }

  /** Whether an order of the queue stood, or came, since then. */
  wasOrdered(tenant: string, queue: string, sinceMs: number): boolean {
    const marks = this.#tenants.get(tenant);
    const last = (name: string): number => marks?.get(name)?.orderedAtMs ?? -Infinity;
    return Math.max(last(queue), last(ALL_QUEUES)) >= sinceMs;
  }

  /** Looks at all of them. */
  review({ nowMs, ...seeing }: Seeing): void {
    for (const [tenant, marks] of this.#tenants) {
      for (const [queue, mark] of marks) {
        const isOrdered = seeing.isOrdered(queue, tenant);
        const next = nextMark(mark, {
          nowMs,
          isOrdered,
          isRunning: seeing.isRunning(queue, tenant),
        });
        if (next === undefined) marks.delete(queue);
        else marks.set(queue, next);
        if (next?.state !== mark.state) this.#changed.add(tenant);
      }
      if (marks.size === 0) this.#tenants.delete(tenant);
    }
  }

  /** There are more queues: whoever orders all of them orders these. */
  handlesMore(): void {
    for (const [tenant, marks] of this.#tenants) {
      if (marks.has(ALL_QUEUES)) this.#changed.add(tenant);
    }
  }

  /** What the others do not know. `handled` are the names of all queues. */
  news(handled: Iterable<string>): TenantService[] {
    const all = [...handled];
    const news: TenantService[] = [];
    for (const tenant of this.#changed) {
      const service = this.#serviceOf(tenant, all);
      const said = this.#said.get(tenant);
      const isNothing = said === undefined && service.queues.length === 0;
      if (isNothing || said === JSON.stringify(service)) this.#changed.delete(tenant);
      else news.push(service);
    }
    return news;
  }

  /** They were told this. What has changed meanwhile is news again. */
  told(services: readonly TenantService[]): void {
    for (const service of services) {
      if (service.queues.length === 0) this.#said.delete(service.tenant);
      else this.#said.set(service.tenant, JSON.stringify(service));
    }
  }

  #serviceOf(tenant: string, handled: readonly string[]): TenantService {
    const marks = this.#tenants.get(tenant) ?? new Map<string, Mark>();
    const ofAll = marks.get(ALL_QUEUES);
    const named = [...marks.keys()].filter((queue) => queue !== ALL_QUEUES);
    const queues = [...new Set(ofAll === undefined ? named : [...named, ...handled])].sort();
    const isAsked = (queue: string): boolean =>
      ofAll?.state === "asked" || marks.get(queue)?.state === "asked";
    return { tenant, queues, idle: queues.filter((queue) => !isAsked(queue)) };
  }
}
