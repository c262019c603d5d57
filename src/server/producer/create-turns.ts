import { type Create, OpenCreate, type Part, wholeOf } from "./open-create.ts";

export interface CommitLimits {
  readonly tasksMax: number;
  readonly bytesMax: number;
}

interface TenantLine {
  /** To be committed one by one, each alone, before anything else of the tenant. */
  readonly pieces: Part[][];
  /** By source, the one whose turn it is first. */
  readonly sources: Map<object, OpenCreate[]>;
}

/**
 * Who is committed next: tenants take turns, and the sources of a tenant take turns among
 * themselves, one create each, so that a flood delays nobody else by more than one transaction.
 * Creates of one source keep their order, because tasks of one key may be among them.
 */
export class CreateTurns {
  /** The one whose turn it is first. */
  readonly #tenants = new Map<string, TenantLine>();

  get isEmpty(): boolean {
    return this.#tenants.size === 0;
  }

  add(create: Create): void {
    const line = this.#lineOf(create.tenant);
    const open = new OpenCreate(create);
    const creates = line.sources.get(create.source);
    if (creates === undefined) line.sources.set(create.source, [open]);
    else creates.push(open);
  }

  /** What a transaction that was refused was divided into, in order. */
  putBack(pieces: readonly Part[][]): void {
    const tenants = new Map<TenantLine, Part[][]>();
    for (const piece of pieces) {
      const tenant = piece[0]?.open.create.tenant;
      if (tenant === undefined) continue;
      const line = this.#lineOf(tenant);
      const others = tenants.get(line);
      if (others === undefined) tenants.set(line, [piece]);
      else others.push(piece);
    }
    for (const [line, some] of tenants) line.pieces.unshift(...some);
  }

  /** The creates of the source that are not in a transaction; they are forgotten. */
  remove(tenant: string, source: object): OpenCreate[] {
    const line = this.#tenants.get(tenant);
    if (line === undefined) return [];
    const creates = line.sources.get(source) ?? [];
    line.sources.delete(source);
    const inPieces = line.pieces.flat().flatMap(({ open }) => open);
    this.#dropIfEmpty(tenant, line);
    return [...creates, ...inPieces.filter(({ create }) => create.source === source)];
  }

  removeAll(): OpenCreate[] {
    const all = [...this.#tenants.values()].flatMap(({ pieces, sources }) => [
      ...pieces.flat().map(({ open }) => open),
      ...[...sources.values()].flat(),
    ]);
    this.#tenants.clear();
    return all;
  }

  /** The parts of the next transaction; none when nobody waits. */
  take(limits: CommitLimits): Part[] {
    for (const [tenant, line] of Array.from(this.#tenants)) {
      const piece = this.#takePiece(tenant, line);
      if (piece === undefined) return this.#gather(limits);
      if (piece.length > 0) return piece;
    }
    return [];
  }

  /** Without those that were settled meanwhile. Undefined when the tenant has no pieces. */
  #takePiece(tenant: string, line: TenantLine): Part[] | undefined {
    for (let piece = line.pieces.shift(); piece !== undefined; piece = line.pieces.shift()) {
      const left = piece.filter(({ open }) => !open.isSettled);
      if (left.length === 0) continue;
      this.#toBack(tenant, line);
      this.#dropIfEmpty(tenant, line);
      return left;
    }
    this.#dropIfEmpty(tenant, line);
    return line.sources.size > 0 ? undefined : [];
  }

  /** One create of each tenant in turn, until the transaction is full. */
  #gather({ tasksMax, bytesMax }: CommitLimits): Part[] {
    const parts: Part[] = [];
    const keys = new Set<string>();
    const passed = new Set<string>();
    let tasks = 0;
    let bytes = 0;
    for (;;) {
      const next = this.#nextOf(passed);
      if (next === undefined) return parts;
      const { tenant, line, source, open } = next;
      const { create } = open;
      const isOver = tasks + create.tasks.length > tasksMax || bytes + create.bytes > bytesMax;
      if (parts.length > 0 && isOver) return parts;
      if (!claimKeys(create, keys)) {
        // The same idempotency key twice: the second is judged by what became of the first.
        passed.add(tenant);
        continue;
      }
      this.#shift(line, source);
      this.#toBack(tenant, line);
      this.#dropIfEmpty(tenant, line);
      tasks += create.tasks.length;
      bytes += create.bytes;
      parts.push(wholeOf(open));
    }
  }

  #nextOf(
    passed: ReadonlySet<string>,
  ): { tenant: string; line: TenantLine; source: object; open: OpenCreate } | undefined {
    for (const [tenant, line] of this.#tenants) {
      if (passed.has(tenant) || line.pieces.length > 0) continue;
      for (const [source, creates] of line.sources) {
        const [open] = creates;
        if (open !== undefined) return { tenant, line, source, open };
      }
    }
    return undefined;
  }

  #shift(line: TenantLine, source: object): void {
    const creates = line.sources.get(source);
    if (creates === undefined) return;
    creates.shift();
    line.sources.delete(source);
    if (creates.length > 0) line.sources.set(source, creates);
  }

  #toBack(tenant: string, line: TenantLine): void {
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, line);
  }

  #lineOf(tenant: string): TenantLine {
    let line = this.#tenants.get(tenant);
    if (line === undefined) {
      line = { pieces: [], sources: new Map() };
      this.#tenants.set(tenant, line);
    }
    return line;
  }

  #dropIfEmpty(tenant: string, line: TenantLine): void {
    if (line.pieces.length > 0 || line.sources.size > 0) return;
    if (this.#tenants.get(tenant) === line) this.#tenants.delete(tenant);
  }
}

/** False, and nothing is taken, when another create has one of its keys. */
function claimKeys({ tenant, tasks }: Create, keys: Set<string>): boolean {
  let own: Set<string> | undefined;
  for (const { idempotency } of tasks) {
    if (idempotency === undefined) continue;
    own ??= new Set();
    own.add(`${tenant}\u0000${idempotency.key}`);
  }
  if (own === undefined) return true;
  for (const key of own) if (keys.has(key)) return false;
  for (const key of own) keys.add(key);
  return true;
}
