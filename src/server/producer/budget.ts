/** A place among what is under way. */
export interface Place {
  /** Resolves when there is room; undefined when there is already. */
  readonly waiting: Promise<void> | undefined;
  /** Gives the room back, or leaves the line. May be called twice. */
  release(): void;
}

interface Waiter {
  readonly bytes: number;
  readonly grant: () => void;
}

interface Tenant {
  bytes: number;
  readonly waiters: Set<Waiter>;
}

/** Of all, for tenants that have nothing under way. */
const RESERVED = 1 / 4;

/**
 * Weighs what all streams have under way. One tenant never takes more than half of it, and the last
 * quarter is for those who have nothing: a flood of some leaves room for a create of another. Room
 * that comes free goes to tenants in turns. What is larger than all that is let in alone.
 */
export class Budget {
  readonly #bytesMax: number;
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;
  #waiting = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  take(tenant: string, bytes: number): Place {
    let one = this.#tenants.get(tenant);
    if (one === undefined) this.#tenants.set(tenant, (one = { bytes: 0, waiters: new Set() }));
    const holder = one;
    let state: "waiting" | "held" | "gone" = "waiting";
    let waiter: Waiter | undefined;
    const grant = (): void => {
      state = "held";
      holder.bytes += bytes;
      this.#bytes += bytes;
    };
    const release = (): void => {
      if (state === "gone") return;
      if (state === "held") {
        holder.bytes -= bytes;
        this.#bytes -= bytes;
      }
      state = "gone";
      if (waiter !== undefined && holder.waiters.delete(waiter)) this.#waiting -= 1;
      if (holder.bytes === 0 && holder.waiters.size === 0) this.#tenants.delete(tenant);
      if (this.#waiting > 0) this.#giveOut();
    };
    if (holder.waiters.size === 0 && this.#fits(holder, bytes)) {
      grant();
      return { waiting: undefined, release };
    }
    const waiting = new Promise<void>((resolve) => {
      waiter = {
        bytes,
        grant: () => {
          grant();
          resolve();
        },
      };
      holder.waiters.add(waiter);
      this.#waiting += 1;
    });
    return { waiting, release };
  }

  #fits(tenant: Tenant, bytes: number): boolean {
    const max = this.#bytesMax;
    if (this.#bytes === 0) return true;
    if (tenant.bytes === 0) return this.#bytes + bytes <= max;
    return tenant.bytes + bytes <= max / 2 && this.#bytes + bytes <= max * (1 - RESERVED);
  }

  /** One for each tenant in turn, as long as something fits. */
  #giveOut(): void {
    let isGiven = true;
    while (isGiven) {
      isGiven = false;
      for (const [name, tenant] of Array.from(this.#tenants)) {
        const [waiter] = tenant.waiters;
        if (waiter === undefined || !this.#fits(tenant, waiter.bytes)) continue;
        tenant.waiters.delete(waiter);
        this.#waiting -= 1;
        waiter.grant();
        isGiven = true;
        this.#tenants.delete(name);
        this.#tenants.set(name, tenant);
      }
    }
  }
}
