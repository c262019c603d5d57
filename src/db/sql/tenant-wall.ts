import type { Queryable } from "../database.ts";
import { type Statement, statement } from "../statement.ts";

// The kind of membership that matters has a name of its own since version 16.
const FACTS = statement(
  "tenant_wall_facts",
  `SELECT role.rolname AS role,
          (SELECT relrowsecurity FROM pg_class WHERE oid = '{schema}.tasks'::regclass) AS is_up,
          CASE WHEN current_setting('server_version_num')::int >= 160000
               THEN pg_has_role(session_user, role.oid, 'SET')
               ELSE pg_has_role(session_user, role.oid, 'MEMBER') END AS may_become,
          pg_has_role(session_user, role.oid, 'USAGE')
            AND NOT me.rolsuper AND NOT me.rolbypassrls
            AND NOT pg_has_role(session_user, tasks.relowner, 'USAGE') AS is_shut_in,
          session_user::text AS login
     FROM {schema}.settings AS setting
     JOIN pg_roles AS me ON me.rolname = session_user
     JOIN pg_class AS tasks ON tasks.oid = '{schema}.tasks'::regclass
     LEFT JOIN pg_roles AS role ON role.rolname = setting.value
    WHERE setting.key = 'tenant_role'`,
);

export interface WallFacts {
  /** Null when it was dropped. */
  readonly role: string | null;
  readonly is_up: boolean;
  readonly may_become: boolean | null;
  /** The login has the role's rights without becoming it, and would see nothing by itself. */
  readonly is_shut_in: boolean | null;
  readonly login: string;
}

/** Undefined when no wall was ever raised. */
export async function readWallFacts(db: Queryable): Promise<WallFacts | undefined> {
  const [row] = await db.query<WallFacts>(FACTS);
  return row;
}

// Both end with the transaction, so a pooler may give the session to anybody afterwards.
const ENTER = statement(
  "tenant_wall_enter",
  "SELECT set_config('tidemill.tenant', $2, TRUE), set_config('role', $1, TRUE)",
);

/** For the rest of the transaction: only rows of this tenant exist. */
export async function enterWall(tx: Queryable, role: string, tenant: string): Promise<void> {
  await tx.query(ENTER, [role, tenant]);
}

const BEGIN = statement("tenant_wall_begin", "BEGIN ISOLATION LEVEL READ COMMITTED");
const COMMIT = statement("tenant_wall_commit", "COMMIT");

/**
 * One statement behind the wall, in one round trip: should the wall not open, what follows in the
 * transaction fails as well. Waits for all answers, so that the connection can be used again.
 */
export async function queryBehindWall<Row>(
  connection: Queryable,
  [role, tenant]: readonly [string, string],
  [one, values]: readonly [Statement, readonly unknown[]],
): Promise<Row[]> {
  const [begun, entered, answer, ended] = await Promise.allSettled([
    connection.query(BEGIN),
    enterWall(connection, role, tenant),
    connection.query<Row>(one, values),
    connection.query(COMMIT),
  ]);
  for (const step of [begun, entered, answer, ended]) {
    if (step.status === "rejected") throw step.reason;
  }
  return answer.status === "fulfilled" ? answer.value : [];
}
