import { ConfigError } from "../base/errors.ts";
import type { Connection, Database, Queryable, Store } from "./database.ts";
import type { SqlExecutor } from "./executor.ts";
import { enterWall, queryBehindWall, readWallFacts } from "./sql/tenant-wall.ts";
import type { Statement } from "./statement.ts";

/**
 * The second wall between tenants: row-level security, behind which a statement that forgot its
 * tenant still finds the rows of one tenant only. docs/reference/auth.md says how it is raised.
 */
export class TenantWall {
  readonly role: string;
  readonly #db: Database;

  private constructor(db: Database, role: string) {
    this.#db = db;
    this.role = role;
  }

  /** Or why there is none that would hold, and what to do. */
  static async find(db: Database): Promise<TenantWall | string> {
    const facts = await readWallFacts(db);
    const { role, login } = facts ?? {};
    if (facts === undefined || role === undefined || role === null || !facts.is_up) {
      const what = facts === undefined ? "was never raised" : "was taken down";
      return (
        `the second wall between tenants ${what}: call raise_tenant_wall() as the owner of the ` +
        'tables, see "Second wall" in docs/reference/auth.md'
      );
    }
    if (facts.is_shut_in === true) {
      throw new ConfigError(
        `role "${login}" inherits from "${role}", the wall between tenants, and sees no task by ` +
          "itself: grant it WITH INHERIT FALSE, or before PostgreSQL 16 make the login NOINHERIT",
      );
    }
    if (facts.may_become === true) return new TenantWall(db, role);
    return (
      `role "${login}" may not become "${role}", the wall between tenants: ` +
      `GRANT "${role}" TO "${login}", with INHERIT FALSE and SET TRUE since PostgreSQL 16`
    );
  }

  /** What this tenant has, and nothing else. */
  behind(tenant: string): Store {
    return new WalledStore(this.#db, this.role, tenant);
  }
}

class WalledStore implements Store {
  readonly isWalled = true;
  readonly #db: Database;
  readonly #role: string;
  readonly #tenant: string;

  constructor(db: Database, role: string, tenant: string) {
    // An empty text is what a session has that was never told, and must not be a tenant.
    if (tenant === "") throw new Error("a tenant without a name");
    this.#db = db;
    this.#role = role;
    this.#tenant = tenant;
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    return await this.#db.withConnection((connection) =>
      queryBehindWall<Row>(connection, [this.#role, this.#tenant], [statement, values]),
    );
  }

  async transaction<T>(work: (tx: Connection) => Promise<T>): Promise<T> {
    return await this.#db.transaction(async (tx) => {
      await enterWall(tx, this.#role, this.#tenant);
      return await work(tx);
    });
  }

  async withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    return await this.transaction(work);
  }

  over(executor: SqlExecutor): Queryable {
    return this.#db.over(executor);
  }
}
