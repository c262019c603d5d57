import { producerStatements } from "./producer.ts";
import type { Pace } from "./session.ts";
import { SimPostgres } from "./sim-postgres.ts";
import { claimStatements } from "./statements/claim.ts";
import { endStatements } from "./statements/ends.ts";
import { holdStatements } from "./statements/holds.ts";
import { housekeepingStatements } from "./statements/housekeeping.ts";
import { keyStatements } from "./statements/keys.ts";
import { leaderStatements } from "./statements/leader.ts";
import { otherStatements, sessionStatements } from "./statements/session.ts";
import type { SimStatements } from "./statements/statement.ts";
import { workerStatements } from "./statements/workers.ts";
import { type Table, Transaction } from "./store.ts";
import { makeTables, type Tables } from "./tables.ts";
import type { Timeline } from "./timeline.ts";

const STATEMENTS: SimStatements = {
  ...sessionStatements,
  ...otherStatements,
  ...leaderStatements,
  ...workerStatements,
  ...claimStatements,
  ...keyStatements,
  ...holdStatements,
  ...endStatements,
  ...housekeepingStatements,
  ...producerStatements,
};

export interface SimServer {
  readonly server: SimPostgres;
  readonly tables: Tables;
  /** Puts rows there, committed and flushed. */
  write(work: (put: <T>(table: Table<T>, row: NoInfer<T>) => void) => void): void;
}

/** A server with the rows that the migrations make. */
export function startServer(timeline: Timeline, pace: Pace | undefined): SimServer {
  const server = new SimPostgres(
    timeline,
    (request, run, session) => {
      const { name, text, values } = request;
      if (name === undefined && text.startsWith("LISTEN ")) {
        session.listening.add(text.slice('LISTEN "'.length, -1));
        return nothing();
      }
      const known = STATEMENTS[name ?? ""];
      // Not an error of the server's: a simulation that lacks a statement proves nothing.
      if (known === undefined) throw new Error(`the simulation has no ${name ?? text}`);
      return known({ run, tables, server, session }, values);
    },
    pace,
  );
  const tables = makeTables(server.store);
  seed(server, tables);
  server.onCrash(() => tables.markers.rows.clear());
  return { server, tables, write: (work) => write(server, work) };
}

// oxlint-disable-next-line require-yield
function* nothing(): Generator<never, readonly object[], void> {
  return [];
}

function write(server: SimPostgres, work: Parameters<SimServer["write"]>[0]): void {
  const { store } = server;
  const tx = new Transaction(server.clock());
  const xid = store.xidOf(tx);
  work((table, row) => {
    const stored = table.at(table.keyOf(row));
    stored.lock(xid, "update");
    stored.write(row, xid, 0);
    tx.touched.add(stored);
  });
  server.commit(tx, true);
}

function seed(server: SimPostgres, tables: Tables): void {
  write(server, (put) => {
    put(tables.terms, { id: 1, term: 0, leaderId: null });
    put(tables.changes, { id: 1, version: 0 });
    put(tables.fences, { id: 1, drawnAt: server.clock() });
    put(tables.markers, { single: true, id: "marker 0" });
  });
}
