import type { Queryable } from "../../db/database.ts";
import { statement } from "../../db/statement.ts";

// Facts without which the gap proof does not hold, read in one statement.
const PRECONDITIONS = statement(
  "event_log_preconditions",
  `SELECT pg_get_serial_sequence('{events}', 'global_position') AS sequence,
          seq.seqcache = 1 AND seq.seqincrement = 1 AND NOT seq.seqcycle AS sequence_is_plain,
          NOT EXISTS (
            SELECT FROM pg_partition_tree('{events}'::regclass) AS part
             WHERE NOT EXISTS (
               SELECT FROM pg_trigger AS trigger
                WHERE trigger.tgrelid = part.relid
                  AND trigger.tgname = 'tidemill_draw_xid_first'
                  AND trigger.tgenabled IN ('O', 'A'))
          ) AND EXISTS (
            SELECT FROM pg_trigger AS trigger
             WHERE trigger.tgrelid = '{events}'::regclass
               AND trigger.tgname = 'tidemill_draw_xid_first'
               AND trigger.tgenabled IN ('O', 'A')
          ) AS draws_xid_first
     FROM pg_sequence AS seq
    WHERE seq.seqrelid = pg_get_serial_sequence('{events}', 'global_position')::regclass`,
);

export interface LogPreconditions {
  readonly sequence: string;
  readonly sequenceIsPlain: boolean;
  readonly drawsXidFirst: boolean;
}

export async function readLogPreconditions(db: Queryable): Promise<LogPreconditions | undefined> {
  const [row] = await db.query<{
    sequence: string;
    sequence_is_plain: boolean;
    draws_xid_first: boolean;
  }>(PRECONDITIONS);
  return row === undefined
    ? undefined
    : {
        sequence: row.sequence,
        sequenceIsPlain: row.sequence_is_plain,
        drawsXidFirst: row.draws_xid_first,
      };
}

const CREATE_PARTITIONS = statement(
  "event_partitions_create",
  "SELECT {schema}.create_event_partitions($1::bigint, $2::int) AS made",
);

export async function createEventPartitions(
  db: Queryable,
  size: number,
  ahead: number,
): Promise<number> {
  const [row] = await db.query<{ made: number }>(CREATE_PARTITIONS, [size, ahead]);
  return row?.made ?? 0;
}
