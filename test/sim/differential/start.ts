import type pg from "pg";
import { bucketOf } from "../../../src/cluster/ring.ts";
import { keyLane } from "../../../src/tasks/task.ts";
import type { SimServer } from "../server.ts";
import type { TaskRow } from "../tables.ts";

/** Three workers; the last has not beaten for long. */
export const WORKERS = [1, 2, 3].map((one) => `${one}0000000-0000-4000-8000-000000000000`);
export const [FIRST = "", SECOND = "", STALE = ""] = WORKERS;
export const KEYS = ["k1", "k2"];
export const KEY_LANES = KEYS.map((key) => keyLane(0, bucketOf(key)));
export const TERM = 5;
export const claimUuid = (number: number): string =>
  `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`;

/** Long before and long after anything that happens in a script. */
const FAR_MS = 1_000_000;

interface StartTask {
  readonly key?: string;
  /** Who runs it, and whether its lease has ended. */
  readonly by?: string;
  readonly isOver?: boolean;
}

const TASKS: readonly StartTask[] = [
  {},
  {},
  {},
  { by: FIRST },
  { by: SECOND, isOver: true },
  { key: "k1" },
  { key: "k1" },
  { key: "k2", by: SECOND, isOver: true },
  { key: "k2", by: SECOND },
  { key: "k2" },
];
/** Numbers that are drawn later come after all of these. */
const LAST_NUMBER = 100;

function taskRows(now: number): TaskRow[] {
  return TASKS.map(({ key, by, isOver }, place) => {
    const id = place + 1;
    return {
      id,
      claimOrder: id,
      createdAt: now,
      runAt: now,
      lane: key === undefined ? 1 : keyLane(0, bucketOf(key)),
      maxAttempts: 5,
      priority: 5,
      losses: 0,
      onProbation: false,
      state: by === undefined ? "pending" : "running",
      attempt: by === undefined ? 0 : 1,
      generation: by === undefined ? 0 : 1,
      claimId: by === undefined ? null : claimUuid(id),
      leasedBy: by ?? null,
      leaseUntil: by === undefined ? null : now + (isOver === true ? -FAR_MS : FAR_MS),
      tenant: "t",
      queue: "work",
      partitionKey: key ?? null,
      payload: "1",
    };
  });
}

const heartbeatOf = (worker: string): number => (worker === STALE ? -FAR_MS : FAR_MS);

/** The same rows on both sides; times are told from now. */
export function startSim(scene: SimServer): void {
  const { server, tables } = scene;
  const now = server.clock();
  while (server.store.lastNumber < LAST_NUMBER) server.store.nextNumber();
  scene.write((put) => {
    put(tables.terms, { id: 1, term: TERM, leaderId: FIRST });
    for (const workerId of WORKERS) {
      const heartbeatAt = now + heartbeatOf(workerId);
      put(tables.nodes, { workerId, heartbeatAt });
      put(tables.infos, {
        workerId,
        status: "active",
        capabilities: [],
        queues: ["work"],
        lastSeenAt: heartbeatAt,
        endedAt: null,
      });
    }
    put(tables.assignments, { consumerName: "a", workerId: FIRST });
    put(tables.assignments, { consumerName: "b", workerId: null });
    put(tables.assignments, { consumerName: "c", workerId: STALE });
    put(tables.leases, { leaseKey: "leader", leaderId: FIRST, expiresAt: now - FAR_MS });
    put(tables.keySpaces, { id: 0, name: "work" });
    put(tables.queues, { name: "work", keySpaceId: 0, settings: {}, limits: {} });
    put(tables.lanes, { lane: 1, queue: "work", tenant: "t", priority: 5 });
    put(tables.lanes, { lane: 2, queue: "work", tenant: "t", priority: -1 });
    for (const task of taskRows(now)) {
      put(tables.tasks, task);
      if (task.claimId === null || task.leaseUntil === null) continue;
      put(tables.claims, {
        claimId: task.claimId,
        workerId: task.leasedBy ?? "",
        checkAt: task.leaseUntil,
        taskIds: [task.id],
        keyLanes: task.lane < 0 ? [task.lane] : null,
      });
    }
    KEYS.forEach((key, place) => {
      const workerId = WORKERS[place] ?? "";
      put(tables.owners, { keySpaceId: 0, workerId, epoch: place + 1, buckets: [bucketOf(key)] });
    });
  });
}

const at = (ms: number): string => `NOW() + INTERVAL '${ms / 1_000} seconds'`;
const text = (value: string | null): string => (value === null ? "NULL" : `'${value}'`);

const EMPTIED = [
  "tasks",
  "task_claims",
  "task_history",
  "task_failures",
  "task_tally",
  "dead_letters",
  "key_holds",
  "bucket_owners",
  "task_lanes",
  "queues",
  "key_spaces",
  "consumer_assignments",
  "worker_leader_election",
  "worker_info",
  "worker_nodes",
];

/** As one text, because it is run before every script. */
function startSql(): string {
  const tasks = taskRows(0);
  const instant = (ms: number | null): string => (ms === null ? "NULL" : at(ms));
  return [
    ...EMPTIED.map((table) => `DELETE FROM tidemill.${table}`),
    `SELECT setval('tidemill.task_numbers', ${LAST_NUMBER})`,
    `UPDATE tidemill.leader_term SET term = ${TERM}, leader_id = '${FIRST}'`,
    "UPDATE tidemill.cluster_changes SET version = 0",
    ...WORKERS.flatMap((worker) => [
      `INSERT INTO tidemill.worker_nodes (worker_id, heartbeat_at)
       VALUES ('${worker}', ${at(heartbeatOf(worker))})`,
      `INSERT INTO tidemill.worker_info
              (worker_id, status, host, pid, version, capabilities, queues, last_seen_at)
       VALUES ('${worker}', 'active', '', 0, '', '{}', '{work}', ${at(heartbeatOf(worker))})`,
    ]),
    `INSERT INTO tidemill.consumer_assignments (consumer_name, worker_id)
     VALUES ('a', '${FIRST}'), ('b', NULL), ('c', '${STALE}')`,
    `INSERT INTO tidemill.worker_leader_election (lease_key, leader_id, expires_at)
     VALUES ('leader', '${FIRST}', ${at(-FAR_MS)})`,
    `INSERT INTO tidemill.key_spaces (id, name) OVERRIDING SYSTEM VALUE VALUES (0, 'work')`,
    `INSERT INTO tidemill.queues (name, key_space_id) VALUES ('work', 0)`,
    `INSERT INTO tidemill.task_lanes (lane, queue, tenant, priority) OVERRIDING SYSTEM VALUE
     VALUES (1, 'work', 't', 5), (2, 'work', 't', -1)`,
    ...tasks.map(
      (task) => `INSERT INTO tidemill.tasks
              (id, claim_order, lane, max_attempts, priority, state, attempt, lease_generation,
               claim_id, leased_by, lease_until, tenant, queue, partition_key, partition_bucket,
               payload)
       VALUES (${task.id}, ${task.claimOrder}, ${task.lane}, 5, 5, '${task.state}', ${task.attempt},
               ${task.generation}, ${text(task.claimId)}, ${text(task.leasedBy)},
               ${instant(task.leaseUntil)}, 't', 'work', ${text(task.partitionKey)},
               ${task.partitionKey === null ? "NULL" : bucketOf(task.partitionKey)}, '1')`,
    ),
    ...tasks
      .filter((task) => task.claimId !== null)
      .map(
        (task) => `INSERT INTO tidemill.task_claims
                (claim_id, worker_id, check_at, task_ids, key_lanes)
         VALUES (${text(task.claimId)}, ${text(task.leasedBy)}, ${instant(task.leaseUntil)},
                 '{${task.id}}', ${task.lane < 0 ? `'{${task.lane}}'` : "NULL"})`,
      ),
    ...KEYS.map(
      (key, place) => `INSERT INTO tidemill.bucket_owners (key_space_id, worker_id, epoch, buckets)
       VALUES (0, '${WORKERS[place]}', ${place + 1}, '{${bucketOf(key)}}')`,
    ),
  ].join(";\n");
}

const START_SQL = startSql();

export async function startPostgres(admin: pg.Client): Promise<void> {
  await admin.query(START_SQL);
}
