import type { Run, Steps } from "../run.ts";
import type { Assignment, Tables, WorkerInfo } from "../tables.ts";
import { holdTerm } from "./leader.ts";
import { secondsToMs } from "./parameters.ts";
import { reading, type SimStatements } from "./statement.ts";

/** Deletes a registration; its foreign keys free its assignments and its lease. */
function* removeNodes(
  run: Run,
  tables: Tables,
  where: (workerId: string, heartbeatAt: number) => boolean,
): Steps<string[]> {
  const gone = yield* run.removeAll(tables.nodes, (node) => where(node.workerId, node.heartbeatAt));
  const ids = gone.map((node) => node.workerId);
  run.lookAgain();
  yield* run.updateAll(
    tables.assignments,
    (row) => row.workerId !== null && ids.includes(row.workerId),
    () => ({ workerId: null }),
  );
  yield* run.removeAll(
    tables.leases,
    (lease) => lease.leaderId !== null && ids.includes(lease.leaderId),
  );
  return ids;
}

const isHere = (info: WorkerInfo): boolean =>
  info.status === "active" || info.status === "draining";

function* announce(run: Run, tables: Tables, channel: unknown): Steps<void> {
  const rows = yield* run.updateAll(
    tables.changes,
    () => true,
    (row) => ({ version: row.version + 1 }),
  );
  for (const { version } of rows) {
    run.tx.notices.push({ channel: String(channel), payload: String(version) });
  }
}

/** src/cluster/sql/workers.ts, changes.ts and assignments.ts */
export const workerStatements: SimStatements = {
  *workers_remove_stale({ run, tables, server }, [seconds, ownId]) {
    const ageMs = secondsToMs(seconds);
    if (server.startedAt >= run.now - ageMs / 2) return [];
    const ids = yield* removeNodes(
      run,
      tables,
      (id, heartbeatAt) => heartbeatAt < run.now - ageMs && id !== ownId,
    );
    yield* run.updateAll(
      tables.infos,
      (info) => ids.includes(info.workerId) && isHere(info),
      (info) => ({ status: "dead" as const, endedAt: info.endedAt ?? run.now }),
    );
    return ids.map((worker_id) => ({ worker_id }));
  },
  *workers_mark_dead({ run, tables }, [seconds, ownId]) {
    const since = run.now - secondsToMs(seconds);
    const marked = yield* run.updateAll(
      tables.infos,
      (info) =>
        isHere(info) &&
        info.workerId !== ownId &&
        info.lastSeenAt < since &&
        !run.exists(
          tables.nodes,
          (node) => node.workerId === info.workerId && node.heartbeatAt >= since,
        ),
      () => ({ status: "dead" as const, endedAt: run.now }),
    );
    return marked.map(({ workerId }) => ({ worker_id: workerId }));
  },
  *workers_forget({ run, tables }, [seconds]) {
    const since = run.now - secondsToMs(seconds);
    yield* run.removeAll(tables.infos, (info) => info.endedAt !== null && info.endedAt < since);
    return [];
  },
  *worker_register({ run, tables }, [workerId, , , , capabilities, queues]) {
    const id = String(workerId);
    yield* run.insertNew(tables.nodes, { workerId: id, heartbeatAt: run.now }, "worker_nodes_pkey");
    const info: WorkerInfo = {
      workerId: id,
      status: "active",
      capabilities: capabilities as string[],
      queues: queues as string[],
      lastSeenAt: run.now,
      endedAt: null,
    };
    yield* run.insertNew(tables.infos, info, "worker_info_pkey");
    return [];
  },
  *worker_heartbeat({ run, tables }, [workerId, , status]) {
    const beaten = yield* run.updateAll(
      tables.nodes,
      (node) => node.workerId === workerId,
      () => ({ heartbeatAt: run.now }),
    );
    if (beaten.length === 0) return [];
    yield* run.updateAll(
      tables.infos,
      (info) => info.workerId === workerId,
      (info) => ({
        lastSeenAt: run.now,
        endedAt: null,
        status: info.status === "dead" ? (status as WorkerInfo["status"]) : info.status,
      }),
    );
    return [{ worker_id: workerId }];
  },
  *worker_drain({ run, tables }, [workerId]) {
    return yield* run.updateAll(
      tables.infos,
      (info) => info.workerId === workerId && info.status === "active",
      () => ({ status: "draining" as const }),
    );
  },
  *worker_deregister({ run, tables }, [workerId]) {
    yield* run.updateAll(
      tables.infos,
      (info) => info.workerId === workerId && isHere(info),
      () => ({ status: "stopped" as const, endedAt: run.now, lastSeenAt: run.now }),
    );
    // PostgreSQL runs a WITH that nothing refers to when the statement itself is done.
    yield* removeNodes(run, tables, (id) => id === workerId);
    return [];
  },
  workers_live: reading(({ run, tables }, [seconds]) => {
    const timeoutMs = secondsToMs(seconds);
    return run
      .rows(tables.nodes, (node) => node.heartbeatAt >= run.now - timeoutMs)
      .map(({ workerId, heartbeatAt }) => {
        const [info] = run.rows(tables.infos, (one) => one.workerId === workerId);
        const is_active = (info?.status ?? "active") === "active";
        const expires_in = (heartbeatAt - run.now + timeoutMs) / 1_000;
        const capabilities = info?.capabilities ?? null;
        return { worker_id: workerId, capabilities, is_active, expires_in };
      });
  }),
  *cluster_announce({ run, tables }, [channel]) {
    yield* announce(run, tables, channel);
    return [];
  },
  assignments_all: reading(({ run, tables }) =>
    run.rows(tables.assignments).map(({ consumerName, workerId }) => ({
      consumer_name: consumerName,
      worker_id: workerId,
    })),
  ),
  // No batch runs here that could have marked its transaction.
  dead_batches_end: reading(() => []),
  *assignments_move({ run, tables }, [term, leaderId, names, expected, owners]) {
    if (!(yield* holdTerm(run, tables, term, leaderId))) return [];
    const [byName, from, to] = [names, expected, owners] as (string | null)[][];
    const wanted = (row: Assignment): boolean => {
      const place = byName?.indexOf(row.consumerName) ?? -1;
      return place >= 0 && row.workerId === from?.[place];
    };
    const found = run
      .select(tables.assignments, wanted)
      .sort((a, b) => (a.data.consumerName < b.data.consumerName ? -1 : 1));
    const free = yield* run.lockAll(found, "update", wanted, "skip");
    for (const one of free) {
      const owner = to?.[byName?.indexOf(one.data.consumerName) ?? -1] ?? null;
      yield* run.update(tables.assignments, one, () => ({ workerId: owner }));
    }
    for (const { data } of free) {
      const owner = to?.[byName?.indexOf(data.consumerName) ?? -1] ?? null;
      if (owner !== null) yield* run.refer(tables.nodes, (node) => node.workerId === owner);
    }
    return free.map(({ data }) => ({ consumer_name: data.consumerName }));
  },
  *assignment_move_busy({ run, tables }, [term, leaderId, name, from, to]) {
    if (!(yield* holdTerm(run, tables, term, leaderId))) return [];
    const moved = yield* run.updateAll(
      tables.assignments,
      (row) => row.consumerName === name && row.workerId === from,
      () => ({ workerId: to as string | null }),
    );
    if (moved.length > 0 && to !== null) {
      yield* run.refer(tables.nodes, (node) => node.workerId === to);
    }
    return moved.map(({ consumerName }) => ({ consumer_name: consumerName }));
  },
};
