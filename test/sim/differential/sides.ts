import pg from "pg";
import type { Queryable } from "../../../src/db/database.ts";
import { Connection, type Database } from "../../../src/db/database.ts";
import { sqlState } from "../../../src/db/sqlstate.ts";
import type { Statement } from "../../../src/db/statement.ts";
import type { SimServer } from "../server.ts";
import type { Reply, Session } from "../session.ts";

/** What a session sends: one statement, or the beginning or the end of its transaction. */
export type Sent = "BEGIN" | "COMMIT" | "ROLLBACK" | ((db: Queryable) => Promise<unknown>);

/** What came back, as text; undefined while it waits for others. */
export type Answer = string | undefined;

/** Our transactions never wait for a lock for long; here they wait until they get it. */
const isLeftOut = ({ name }: Statement): boolean => name === "lock_timeout";

async function tell(answer: Promise<unknown>): Promise<string> {
  try {
    return JSON.stringify((await answer) ?? null);
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined;
    const code = sqlState(error)?.length === 5 ? sqlState(error) : sqlState(cause);
    if (code === undefined) throw error;
    return `error ${code}`;
  }
}

/** A session of the simulated server. */
export class SimSide implements Queryable {
  readonly session: Session;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #id = 0;
  answer: Answer = "";
  asked: Promise<void> = Promise.resolve();
  /** The parameters that it sent last. */
  values: readonly unknown[] = [];

  constructor({ server }: SimServer) {
    this.session = server.connect({
      answer: (reply) => {
        this.#waiting.get(reply.id)?.(reply);
        server.timeline.stir();
      },
      notify: () => {},
      onEnd: () => {},
    });
  }

  send(sent: Sent): void {
    this.answer = undefined;
    const answer = typeof sent === "string" ? this.#ask(undefined, sent, []) : sent(this);
    this.asked = tell(typeof sent === "string" ? answer.then(() => null) : answer).then((text) => {
      this.answer = text;
    });
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    if (isLeftOut(statement)) return [];
    this.values = values;
    return (await this.#ask(statement.name, statement.text, values)).rows as Row[];
  }

  #ask(name: string | undefined, text: string, values: readonly unknown[]): Promise<Reply> {
    this.#id += 1;
    const id = this.#id;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, (reply) => {
        if (reply.error === undefined) resolve(reply);
        else reject(reply.error);
      });
      this.session.receive({ id, name, text, values });
    });
  }
}

/** A session of PostgreSQL. */
export class PostgresSide implements Queryable {
  readonly pid: number;
  readonly client: pg.Client;
  readonly #connection: Connection;
  answer: Answer = "";
  asked: Promise<void> = Promise.resolve();

  constructor(client: pg.Client, pid: number, db: Database) {
    this.client = client;
    this.pid = pid;
    this.#connection = new Connection(client, db);
  }

  send(sent: Sent): void {
    this.answer = undefined;
    const answer = typeof sent === "string" ? this.client.query(sent).then(() => null) : sent(this);
    this.asked = tell(answer).then((text) => {
      this.answer = text;
    });
  }

  async query<Row>(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    if (isLeftOut(statement)) return [];
    return await this.#connection.query<Row>(statement, values);
  }
}
