import type { SimServer } from "./server.ts";
import type { LeaderAct } from "./statements/leader.ts";
import type { Change, Transaction } from "./store.ts";
import type { Assignment, LeaderTermRow, OwnerRow } from "./tables.ts";

/** What must not be has happened. */
export class Violation extends Error {}

const isAct = (act: object): act is LeaderAct => "leaderId" in act;

/** Watches every commit for what no order of events may lead to. */
export class ClusterChecker {
  readonly #scene: SimServer;
  readonly #leaders = new Map<number, string>();

  constructor(scene: SimServer) {
    this.#scene = scene;
  }

  /** Terms that somebody led. */
  get terms(): number {
    return this.#leaders.size;
  }

  onCommit(tx: Transaction): void {
    const { tables } = this.#scene;
    const acts = tx.acts.filter(isAct);
    for (const act of acts) this.#checkAct(act);
    for (const change of tx.changes) {
      if (change.table === tables.terms) this.#checkTerm(change);
      if (change.table === tables.owners) this.#checkOwner(acts);
      if (change.table === tables.assignments) this.#checkAssignment(change, acts);
    }
  }

  /** One leader acts in a term, and only in the present one. */
  #checkAct({ term, leaderId }: LeaderAct): void {
    const [row] = this.#scene.server.store.committed(this.#scene.tables.terms);
    if (row?.term !== term || row.leaderId !== leaderId) {
      const now = `term ${row?.term} of ${row?.leaderId}`;
      throw new Violation(`${leaderId} acted as leader of term ${term} in ${now}`);
    }
    const other = this.#leaders.get(term) ?? leaderId;
    if (other !== leaderId) throw new Violation(`${other} and ${leaderId} led in term ${term}`);
  }

  #checkTerm({ before, after }: Change): void {
    const [was, is] = [before, after] as LeaderTermRow[];
    if (was === undefined || is === undefined) throw new Violation("the row of the term is gone");
    if (is.term === was.term) {
      if (is.leaderId === null || is.leaderId === was.leaderId) return;
      throw new Violation(`term ${is.term} went from ${was.leaderId} to ${is.leaderId}`);
    }
    if (is.term !== was.term + 1) throw new Violation(`term ${is.term} came after ${was.term}`);
    if (this.#leaders.has(is.term)) throw new Violation(`term ${is.term} began twice`);
    this.#leaders.set(is.term, is.leaderId ?? "");
  }

  /** At most one owner of each bucket, and written by a leader. */
  #checkOwner(acts: readonly LeaderAct[]): void {
    if (acts.length === 0) throw new Violation("buckets moved without a leader's term");
    const seen = new Map<string, string>();
    const owners: OwnerRow[] = this.#scene.server.store.committed(this.#scene.tables.owners);
    for (const { keySpaceId, workerId, buckets } of owners) {
      for (const bucket of buckets) {
        const other = seen.get(`${keySpaceId} ${bucket}`);
        if (other !== undefined) {
          throw new Violation(`bucket ${bucket} belongs to ${other} and to ${workerId}`);
        }
        seen.set(`${keySpaceId} ${bucket}`, workerId);
      }
    }
  }

  #checkAssignment({ after }: Change, acts: readonly LeaderAct[]): void {
    const row = after as Assignment;
    if (row.workerId === null || acts.length > 0) return;
    throw new Violation(`${row.consumerName} was assigned without a leader's term`);
  }

  /** After quiet: everything belongs to one of those who live, evenly. */
  checkQuiet(live: readonly string[]): void {
    const { server, tables } = this.#scene;
    const leader = server.store.committed(tables.terms)[0]?.leaderId;
    if (leader == null || !live.includes(leader)) throw new Violation(`${leader} leads in quiet`);
    const counts = new Map(live.map((id) => [id, 0]));
    for (const { consumerName, workerId } of server.store.committed(tables.assignments)) {
      if (workerId === null || !counts.has(workerId)) {
        throw new Violation(`${consumerName} belongs to ${workerId}, who does not live`);
      }
      counts.set(workerId, (counts.get(workerId) ?? 0) + 1);
    }
    requireEven("consumers", [...counts.values()]);
  }
}

export function requireEven(what: string, counts: readonly number[]): void {
  if (Math.max(...counts) - Math.min(...counts) <= 1) return;
  throw new Violation(`${what} are spread ${counts.join(", ")}`);
}
