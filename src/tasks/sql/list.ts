import type { Queryable } from "../../db/database.ts";
import { type Statement, statement } from "../../db/statement.ts";
import {
  DEAD_COLUMNS,
  ENDED_COLUMNS,
  inPacks,
  LIVE_COLUMNS,
  type TaskRow,
  type TaskScope,
} from "./inspect.ts";

// Compared in this form, the index of ids is entered at the right place whatever plan is used.
const BELOW = (id: string): string => `${id} < COALESCE($4::bigint, 9223372036854775807)`;

const WANTED = `($1::text[] IS NULL OR looked.queue = ANY ($1::text[]))
      AND ($2::text IS NULL OR looked.tenant = $2)
      AND ($3::text IS NULL OR looked.partition_key = $3)`;

// Sorted by the number, which the output has as a text of the same name. The newest so many are
// looked at, and rows are taken from the index until the page is full: what is rare among millions
// would else be looked for through all of them.
const newest = (columns: string, table: string, state: string, among = "TRUE"): string =>
  `${columns}
     FROM (SELECT * FROM {schema}.${table}
            WHERE ${BELOW("id")} AND ${among}
            ORDER BY id DESC
            LIMIT $7) AS looked
    WHERE ${WANTED}
      AND ${state}
    ORDER BY looked.id DESC
    LIMIT $6`;

const PACK_FILTER = `($1::text[] IS NULL OR pack.queue = ANY ($1::text[]))
            AND ($2::text IS NULL OR pack.tenant = $2)
            AND ($3::text IS NULL OR $3 = ANY (string_to_array(pack.keys, chr(30))))`;

const OF_PACKS = `
     WHERE ${BELOW("one.id")}
       AND ($3::text IS NULL OR one.key = $3)
     ORDER BY one.id DESC
     LIMIT $6`;

// One statement, because a pack may be opened meanwhile. Of packs, those that the page begins in,
// and as many below it as tasks are asked for: each of those holds one at least. Which come from
// packs is told, because they say nothing of how far the table was looked through.
const LIST_LIVE = statement(
  "tasks_list_live",
  `SELECT listed.*, FALSE AS is_packed
     FROM (${newest(LIVE_COLUMNS, "tasks", "($5::text IS NULL OR looked.state = $5)")}) AS listed
    UNION ALL
   SELECT packed.*, TRUE
     FROM (${inPacks(`
      (SELECT *
         FROM {schema}.task_packs AS pack
        WHERE ${PACK_FILTER}
          AND ($5::text IS NULL OR ($5 = 'pending' AND pack.claim_id IS NULL))
          AND int8range(pack.id, pack.last_id, '[]') @> $4::bigint)
        UNION ALL
      (SELECT *
         FROM {schema}.task_packs AS pack
        WHERE ${PACK_FILTER}
          AND ($5::text IS NULL OR ($5 = 'pending' AND pack.claim_id IS NULL))
          AND ${BELOW("pack.last_id")}
        ORDER BY pack.last_id DESC
        LIMIT $6)`)}
     ${OF_PACKS}) AS packed`,
);

// Those that run are few, and the ledger of claims has their ids.
const LIST_RUNNING = statement(
  "tasks_list_running",
  `(${LIVE_COLUMNS}
     FROM {schema}.tasks AS looked
    WHERE looked.id IN (SELECT {schema}.claimed_tasks())
      AND ${WANTED}
      AND looked.state = $5
      AND ${BELOW("looked.id")}
    ORDER BY looked.id DESC
    LIMIT $6)
    UNION ALL
   (${inPacks(`
      SELECT *
        FROM {schema}.task_packs AS pack
       WHERE pack.id IN (SELECT {schema}.claimed_packs())
         AND pack.claim_id IS NOT NULL
         AND ${PACK_FILTER}`)}
     ${OF_PACKS})`,
);

const LIST_ENDED = statement(
  "tasks_list_ended",
  newest(ENDED_COLUMNS, "task_history", "($5::text IS NULL OR looked.state = $5)"),
);
// By the index of those that did not complete.
const LIST_REFUSED = statement(
  "tasks_list_refused",
  newest(ENDED_COLUMNS, "task_history", "looked.state = $5", "state <> 'completed'"),
);
const LIST_DEAD = statement(
  "tasks_list_dead",
  newest(DEAD_COLUMNS, "dead_letters", "($5::text IS NULL OR $5 = 'dead')"),
);

const reach = (name: string, table: string, among = "TRUE"): Statement =>
  statement(
    name,
    `SELECT count(*)::int AS looked, min(one.id)::text AS last
       FROM (SELECT id FROM {schema}.${table}
              WHERE id < COALESCE($1::bigint, 9223372036854775807) AND ${among}
              ORDER BY id DESC
              LIMIT $2) AS one`,
  );

/** Where tasks are listed from, and how far a bounded look came. */
interface Source {
  readonly list: Statement;
  /** Undefined: all of it is looked at. */
  readonly reach: Statement | undefined;
}

const LIVE: Source = { list: LIST_LIVE, reach: reach("tasks_reach_live", "tasks") };
const RUNNING: Source = { list: LIST_RUNNING, reach: undefined };
const ENDED: Source = { list: LIST_ENDED, reach: reach("tasks_reach_ended", "task_history") };
const REFUSED: Source = {
  list: LIST_REFUSED,
  reach: reach("tasks_reach_refused", "task_history", "state <> 'completed'"),
};
const DEAD: Source = { list: LIST_DEAD, reach: reach("tasks_reach_dead", "dead_letters") };

function sourcesOf(state: TaskRow["state"] | undefined): readonly Source[] {
  if (state === undefined) return [LIVE, ENDED, DEAD];
  if (state === "running") return [RUNNING];
  if (state === "completed") return [ENDED];
  if (state === "failed" || state === "cancelled") return [REFUSED];
  return state === "dead" ? [DEAD] : [LIVE];
}

export interface TaskFilter extends TaskScope {
  readonly partitionKey?: string | undefined;
  readonly state?: TaskRow["state"] | undefined;
  /** Only ids below this one: the last of the page before. */
  readonly before?: string | undefined;
  readonly limit: number;
  /** Of each table no more rows than this are looked at. Defaults to all. */
  readonly look?: number | undefined;
}

type ListedRow = TaskRow & { readonly is_packed?: boolean };

export interface TaskPage {
  /** Newest first. */
  readonly rows: readonly TaskRow[];
  /** Nothing below it was looked at. Undefined: there is nothing more to find. */
  readonly lookedTo: string | undefined;
}

/** A page of tasks wherever they are. */
export async function listTasks(db: Queryable, filter: TaskFilter): Promise<TaskPage> {
  const { queues = null, tenant = null, partitionKey = null, limit } = filter;
  const { state, before = null, look = null } = filter;
  const values = [queues, tenant, partitionKey, before, state ?? null, limit];
  const sources = sourcesOf(state);
  const pages = await Promise.all(
    sources.map((one) => db.query<ListedRow>(one.list, [...values, ...lookOf(one, look)])),
  );
  const all = pages.flat().sort((a, b) => (BigInt(a.id) < BigInt(b.id) ? 1 : -1));
  const ends = sources.map(async (one, at) => {
    const found = pages[at]?.filter(({ is_packed: isPacked }) => isPacked !== true).length ?? 0;
    return found >= limit ? undefined : await reachOf(db, one, before, look);
  });
  const lookedTo = highest(look === null ? [] : await Promise.all(ends));
  // What is below is listed with the page that looks there.
  const seen = all.filter(({ id }) => lookedTo === undefined || BigInt(id) >= BigInt(lookedTo));
  const rows = seen.slice(0, limit);
  if (rows.length === limit) return { rows, lookedTo: rows.at(-1)?.id };
  return { rows, lookedTo };
}

const lookOf = ({ reach: bounded }: Source, look: number | null): readonly (number | null)[] =>
  bounded === undefined ? [] : [look];

/** The last id that was looked at, if there are more. */
async function reachOf(
  db: Queryable,
  source: Source,
  before: string | null,
  look: number | null,
): Promise<string | undefined> {
  if (source.reach === undefined || look === null) return undefined;
  const [row] = await db.query<{ looked: number; last: string | null }>(source.reach, [
    before,
    look,
  ]);
  return row !== undefined && row.looked >= look ? (row.last ?? undefined) : undefined;
}

function highest(ids: readonly (string | undefined)[]): string | undefined {
  const known = ids.filter((id) => id !== undefined).map((id) => BigInt(id));
  const [first] = known.sort((a, b) => (a > b ? -1 : 1));
  return first === undefined ? undefined : String(first);
}
