import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

const REGISTER = statement(
  "task_publication_register",
  "SELECT {schema}.publish_tasks($1, $2, $3::text[])::text AS position",
);

export interface NewPublication {
  readonly name: string;
  readonly withPayload: boolean;
  /** Undefined: all of them. */
  readonly queues: readonly string[] | undefined;
}

/**
 * From now on ends of tasks are kept for it; one that is known goes on where it was. Throws an
 * outage when transactions that end tasks did not let it in between them.
 */
export async function registerPublication(db: Queryable, given: NewPublication): Promise<void> {
  await db.query(REGISTER, [given.name, given.withPayload, given.queues ?? null]);
}

const REMOVE = statement(
  "task_publication_remove",
  "SELECT {schema}.unpublish_tasks($1) AS was_there",
);

/** Forgets it, and what was kept for it alone. False when there is none. */
export async function removePublication(db: Queryable, name: string): Promise<boolean> {
  const [row] = await db.query<{ was_there: boolean }>(REMOVE, [name]);
  return row?.was_there ?? false;
}

/** Who may publish, and from where. What it writes compares both. */
export interface Hold {
  readonly name: string;
  readonly holder: string;
  readonly generation: string;
  /** Ends up to it are published, or refused. */
  readonly position: bigint;
}

// Whoever is the holder stays it until somebody else is; only then does the generation grow.
const TAKE = statement(
  "task_publication_hold",
  `UPDATE {schema}.task_publications
      SET holder = $2::uuid,
          held_until = clock_timestamp() + make_interval(secs => $3::float8),
          generation = generation + (holder IS DISTINCT FROM $2::uuid)::int
    WHERE name = $1
      AND (holder IS NULL OR holder = $2::uuid OR held_until <= clock_timestamp())
   RETURNING generation::text AS generation, position::text AS position,
             intended::text AS intended`,
);

const WAIT = statement(
  "task_publication_wait",
  `SELECT GREATEST(0, extract(epoch FROM held_until - clock_timestamp()))::float8 AS seconds
     FROM {schema}.task_publications
    WHERE name = $1`,
);

export type HoldAnswer =
  | (Hold & { readonly intended: bigint | undefined })
  /** Somebody else has it, for so long; undefined: nobody knows of it any more. */
  | { readonly waitSeconds: number | undefined };

/** Takes a publication that nobody holds, or renews what is held. */
export async function holdPublication(
  db: Queryable,
  name: string,
  holder: string,
  seconds: number,
): Promise<HoldAnswer> {
  type Row = { generation: string; position: string; intended: string | null };
  const [row] = await db.query<Row>(TAKE, [name, holder, seconds]);
  if (row === undefined) {
    const [wait] = await db.query<{ seconds: number | null }>(WAIT, [name]);
    return { waitSeconds: wait === undefined ? undefined : (wait.seconds ?? 0) };
  }
  const { generation, position, intended } = row;
  return {
    name,
    holder,
    generation,
    position: BigInt(position),
    intended: intended === null ? undefined : BigInt(intended),
  };
}

// Durable before anything is published: the commit flushes what the ends were read from, also those
// of transactions that did not wait for it. Otherwise a crash could take back an end that everybody
// was told of, and give its position to another one, which those would take for a repetition.
const INTEND = statement(
  "task_publication_intend",
  `UPDATE {schema}.task_publications
      SET intended = $5::bigint,
          held_until = clock_timestamp() + make_interval(secs => $6::float8)
    WHERE name = $1 AND holder = $2::uuid AND generation = $3::bigint AND position = $4::bigint
      AND (current_setting('synchronous_commit') <> 'off'
           OR set_config('synchronous_commit', 'local', true) IS NOT NULL)
   RETURNING name`,
);

const holdValues = ({ name, holder, generation, position }: Hold): unknown[] => [
  name,
  holder,
  generation,
  String(position),
];

/** Says that ends up to there are about to be published. False: somebody else does it now. */
export async function intendPublication(
  db: Queryable,
  hold: Hold,
  to: bigint,
  seconds: number,
): Promise<boolean> {
  return (await db.query(INTEND, [...holdValues(hold), String(to), seconds])).length === 1;
}

const MOVE = statement(
  "task_publication_move",
  `UPDATE {schema}.task_publications
      SET position = $5::bigint, intended = NULL, updated_at = NOW()
    WHERE name = $1 AND holder = $2::uuid AND generation = $3::bigint AND position = $4::bigint
   RETURNING name`,
);

/** Ends up to there are published, or refused. False: somebody else does it now. */
export async function movePublication(tx: Queryable, hold: Hold, to: bigint): Promise<boolean> {
  return (await tx.query(MOVE, [...holdValues(hold), String(to)])).length === 1;
}

const RENEW = statement(
  "task_publication_renew",
  `UPDATE {schema}.task_publications
      SET held_until = clock_timestamp() + make_interval(secs => $4::float8)
    WHERE name = $1 AND holder = $2::uuid AND generation = $3::bigint
   RETURNING name`,
);

/** False: somebody else has it now, or nobody knows of it any more. */
export async function renewHold(db: Queryable, hold: Hold, seconds: number): Promise<boolean> {
  const { name, holder, generation } = hold;
  return (await db.query(RENEW, [name, holder, generation, seconds])).length === 1;
}

const RELEASE = statement(
  "task_publication_release",
  `UPDATE {schema}.task_publications
      SET holder = NULL, held_until = NULL
    WHERE name = $1 AND holder = $2::uuid AND generation = $3::bigint`,
);

/** Another one may have it at once. */
export async function releaseHold(db: Queryable, hold: Hold): Promise<void> {
  await db.query(RELEASE, [hold.name, hold.holder, hold.generation]);
}

export interface PublicationRow {
  readonly name: string;
  readonly position: string;
  readonly waiting: string;
  readonly waiting_seconds: number | null;
  readonly is_held: boolean;
  readonly with_payload: boolean;
  readonly queues: readonly string[] | null;
}

// Positions without an end count as well: to count rows would take longer the more there are.
const LIST = statement(
  "task_publications_list",
  `SELECT one.name, one.position::text AS position,
          GREATEST(0, COALESCE(pg_sequence_last_value('{schema}.task_ends_position_seq'), 0)
                      - one.position)::text AS waiting,
          (SELECT extract(epoch FROM clock_timestamp() - first.ended_at)::float8
             FROM {schema}.task_ends AS first
            WHERE first.position > one.position
            ORDER BY first.position
            LIMIT 1) AS waiting_seconds,
          COALESCE(one.held_until > clock_timestamp(), FALSE) AS is_held,
          one.with_payload, one.queues
     FROM {schema}.task_publications AS one
    WHERE one.name = COALESCE($1, one.name)
    ORDER BY one.name`,
);

export async function readPublications(db: Queryable, name?: string): Promise<PublicationRow[]> {
  return await db.query<PublicationRow>(LIST, [name ?? null]);
}
