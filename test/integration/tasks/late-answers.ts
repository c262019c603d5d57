import type { Queryable } from "../../../src/db/database.ts";
import type { Statement } from "../../../src/db/statement.ts";
import { type Gate, gate } from "./scene.ts";

/** Hands answers on, but for those of one statement, which come when the test says so. */
export class LateAnswers implements Queryable {
  readonly #db: Queryable;
  #late = "";
  #release: Gate = gate();
  #answered: Gate = gate();

  constructor(db: Queryable, late = "") {
    this.#db = db;
    this.#late = late;
  }

  /** From now on it is this statement. */
  delay(late: string): void {
    this.#late = late;
    this.#release = gate();
    this.#answered = gate();
  }

  /** The server has answered, and nobody knows it yet. */
  get answered(): Promise<void> {
    return this.#answered.opened;
  }

  release(): void {
    this.#release.open();
  }

  async query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
    const rows = await this.#db.query<Row>(statement, values);
    if (statement.name !== this.#late) return rows;
    this.#answered.open();
    await this.#release.opened;
    return rows;
  }
}
