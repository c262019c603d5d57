/** How many calls may be under way at once. */
export interface CallLimits {
  readonly total: number;
  /** Of one lane: an endpoint, or a host that tasks name. */
  readonly lane: number;
  readonly tenant: number;
}

/** A lane or a tenant, and how many calls of it are under way. */
export type Counted = readonly (readonly [name: string, count: number])[];

/**
 * Counts calls under way, so that only what may start at once is claimed. A lane that is slow fills
 * its own places, a tenant with many slow lanes its own: the others always find some.
 */
export class InFlight {
  readonly #limits: CallLimits;
  readonly #lanes = new Map<string, number>();
  readonly #tenants = new Map<string, number>();
  #total = 0;

  constructor(limits: CallLimits) {
    this.#limits = limits;
  }

  get total(): number {
    return this.#total;
  }

  get room(): number {
    return Math.max(0, this.#limits.total - this.#total);
  }

  get lanes(): Counted {
    return [...this.#lanes];
  }

  get tenants(): Counted {
    return [...this.#tenants];
  }

  add({ lane, tenant }: { readonly lane: string; readonly tenant: string }): void {
    this.#count(lane, tenant, 1);
  }

  remove({ lane, tenant }: { readonly lane: string; readonly tenant: string }): void {
    this.#count(lane, tenant, -1);
  }

  #count(lane: string, tenant: string, amount: 1 | -1): void {
    this.#total += amount;
    change(this.#lanes, lane, amount);
    change(this.#tenants, tenant, amount);
  }
}

function change(counts: Map<string, number>, name: string, amount: number): void {
  const count = (counts.get(name) ?? 0) + amount;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
