import type { Run, Steps } from "../run.ts";
import type { Instant, LeaderTermRow, Tables } from "../tables.ts";
import { secondsToMs } from "./parameters.ts";
import { reading, type Scene, type SimStatements } from "./statement.ts";

const isSilent = ({ run, tables }: Scene, seconds: unknown): boolean => {
  if (seconds === null) return false;
  const since: Instant = run.now - secondsToMs(seconds);
  const [term] = run.rows(tables.terms);
  if (term?.leaderId == null) return false;
  const { leaderId } = term;
  return !run.exists(
    tables.nodes,
    (node) => node.workerId === leaderId && node.heartbeatAt >= since,
  );
};

const expiresIn = ({ run, tables }: Scene, seconds: unknown): number | null => {
  if (seconds === null) return null;
  const [term] = run.rows(tables.terms);
  const [node] = run.rows(tables.nodes, (one) => one.workerId === term?.leaderId);
  return node === undefined ? null : (node.heartbeatAt - run.now + secondsToMs(seconds)) / 1_000;
};

/** What a leader says it acts under; whoever checks compares it with the row. */
export interface LeaderAct {
  readonly term: number;
  readonly leaderId: string;
}

/** The term row, compared and locked FOR SHARE to the end of the transaction. */
export function* holdTerm(
  run: Run,
  tables: Tables,
  term: unknown,
  leaderId: unknown,
): Steps<boolean> {
  const isCurrent = (row: LeaderTermRow): boolean =>
    row.term === Number(term) && row.leaderId === leaderId;
  const [found] = run.select(tables.terms, isCurrent);
  if (found === undefined) return false;
  const isHeld = (yield* run.lock(found, "share", isCurrent)) !== undefined;
  if (isHeld) run.tx.acts.push({ term: Number(term), leaderId: String(leaderId) });
  return isHeld;
}

/** src/cluster/sql/leader.ts */
export const leaderStatements: SimStatements = {
  leader_try_lock: reading((scene, [key, seconds]) => {
    const { server, session } = scene;
    const holder = server.advisory.get(String(key));
    const held = holder === undefined || holder === session;
    if (held) server.advisory.set(String(key), session);
    return [{ held, is_silent: isSilent(scene, seconds), expires_in: expiresIn(scene, seconds) }];
  }),
  leader_oust: reading((scene, [high, low, seconds]) => {
    const { server, session } = scene;
    if (!isSilent(scene, seconds)) return [];
    const key = BigInt.asIntN(64, (BigInt(String(high)) << 32n) | BigInt(String(low)));
    const holder = server.advisory.get(String(key));
    if (holder === undefined || holder === session) return [];
    server.terminate(holder);
    return [{ ousted: true }];
  }),
  leader_unlock: reading(({ server, session }, [key]) => {
    const released = server.advisory.get(String(key)) === session;
    if (released) server.advisory.delete(String(key));
    return [{ released }];
  }),
  *leader_take_lease({ run, tables }, [workerId, seconds]) {
    const mine = {
      leaseKey: "leader",
      leaderId: String(workerId),
      expiresAt: run.now + secondsToMs(seconds),
    };
    for (;;) {
      const there = yield* run.insert(tables.leases, mine);
      if (there === undefined) break;
      const held = yield* run.lock(there, "no-key-update");
      if (held === undefined) continue; // It went meanwhile.
      const { leaderId, expiresAt } = held.data;
      const isFree = leaderId === workerId || leaderId === null || expiresAt < run.now;
      if (!isFree) return [];
      yield* run.update(tables.leases, held, () => mine);
      if (leaderId === workerId) return [{}];
      break;
    }
    yield* run.refer(tables.nodes, (node) => node.workerId === workerId);
    return [{}];
  },
  leader_lease_left: reading(({ run, tables }) =>
    run
      .rows(tables.leases, (lease) => lease.leaseKey === "leader")
      .map(({ expiresAt }) => ({ seconds: (expiresAt - run.now) / 1_000 })),
  ),
  *leader_release_lease({ run, tables }, [workerId]) {
    return yield* run.updateAll(
      tables.leases,
      (lease) => lease.leaderId === workerId,
      () => ({ leaderId: null, expiresAt: run.now - 60_000 }),
    );
  },
  *leader_begin_term({ run, tables }, [workerId]) {
    const [row] = yield* run.updateAll(
      tables.terms,
      () => true,
      ({ id, term }) => ({ id, term: term + 1, leaderId: String(workerId) }),
    );
    return row === undefined ? [] : [{ term: String(row.term) }];
  },
  *leader_end_term({ run, tables }, [term, workerId]) {
    return yield* run.updateAll(
      tables.terms,
      (row) => row.term === Number(term) && row.leaderId === workerId,
      () => ({ leaderId: null }),
    );
  },
  *leader_hold_term({ run, tables }, [term, workerId]) {
    return (yield* holdTerm(run, tables, term, workerId)) ? [{ term }] : [];
  },
};
