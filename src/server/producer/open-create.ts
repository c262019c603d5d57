import { TidemillError, UnavailableError } from "../../base/errors.ts";
import type { EncodedTask } from "../../tasks/encode.ts";
import type { StoreResult } from "../../tasks/store.ts";

/** What became of a create. */
export type CreateOutcome =
  /** One result per task. */
  | { readonly kind: "stored"; readonly results: readonly StoreResult[] }
  /** Nothing of it is stored. */
  | { readonly kind: "refused"; readonly error: unknown }
  /** It may be stored or not, and must not be answered. */
  | { readonly kind: "unknown"; readonly error: unknown };

/** Tasks of one tenant that a client gave in one message. */
export interface Create {
  readonly tenant: string;
  /** Where it came from: creates of one source are stored in their order. */
  readonly source: object;
  readonly tasks: readonly EncodedTask[];
  readonly bytes: number;
  /** All of them or none. */
  readonly isAtomic: boolean;
  /** Called once, and must not throw. */
  settle(outcome: CreateOutcome): void;
}

/** A create that waits for its answer, and what is known of it so far. */
export class OpenCreate {
  readonly create: Create;
  /** Made once only some of them are known. */
  #results: (StoreResult | undefined)[] | undefined;
  #left: number;
  #isSettled = false;

  constructor(create: Create) {
    this.create = create;
    this.#left = create.tasks.length;
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** What is known of its tasks from this place on. */
  resolve(from: number, results: readonly StoreResult[]): void {
    if (this.#isSettled) return;
    if (results.length === this.create.tasks.length) {
      this.#settle({ kind: "stored", results });
      return;
    }
    this.#results ??= this.create.tasks.map(() => undefined);
    for (const [index, result] of results.entries()) this.#results[from + index] = result;
    this.#left -= results.length;
    if (this.#left > 0) return;
    const all = this.#results.flatMap((result) => (result === undefined ? [] : [result]));
    this.#settle({ kind: "stored", results: all });
  }

  /** What is known of some of its tasks stays true: then only the others are refused. */
  settle(outcome: CreateOutcome): void {
    if (outcome.kind !== "refused" || this.#results === undefined) {
      this.#settle(outcome);
      return;
    }
    const error = toldOf(outcome.error);
    const results = this.#results.map((result) => result ?? error);
    this.#settle({ kind: "stored", results });
  }

  #settle(outcome: CreateOutcome): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.create.settle(outcome);
  }
}

const toldOf = (error: unknown): TidemillError =>
  error instanceof TidemillError
    ? error
    : new UnavailableError("the task was not stored", { cause: error });

/** Some tasks of a create, in a row. */
export interface Part {
  readonly open: OpenCreate;
  readonly from: number;
  readonly to: number;
}

export function wholeOf(open: OpenCreate): Part {
  return { open, from: 0, to: open.create.tasks.length };
}

export const tasksOf = ({ open, from, to }: Part): readonly EncodedTask[] =>
  from === 0 && to === open.create.tasks.length
    ? open.create.tasks
    : open.create.tasks.slice(from, to);

/**
 * How a transaction that the database refused is tried again, so that what is bad in it is found
 * and the rest is stored: each tenant alone, then halves, then, unless it is atomic, halves of one
 * create. Undefined when nothing is left to divide.
 */
export function divide(parts: readonly Part[]): Part[][] | undefined {
  const tenants = byTenant(parts);
  if (tenants.length > 1) return tenants;
  if (parts.length > 1) {
    const middle = Math.ceil(parts.length / 2);
    return [parts.slice(0, middle), parts.slice(middle)];
  }
  const [part] = parts;
  if (part === undefined || part.open.create.isAtomic || part.to - part.from < 2) return undefined;
  const middle = Math.ceil((part.from + part.to) / 2);
  return [[{ ...part, to: middle }], [{ ...part, from: middle }]];
}

export function byTenant(parts: readonly Part[]): Part[][] {
  const tenants = new Map<string, Part[]>();
  for (const part of parts) {
    const { tenant } = part.open.create;
    const known = tenants.get(tenant);
    if (known === undefined) tenants.set(tenant, [part]);
    else known.push(part);
  }
  return [...tenants.values()];
}
