import type { Run, Steps } from "../run.ts";
import type { Session } from "../session.ts";
import type { SimPostgres } from "../sim-postgres.ts";
import type { Tables } from "../tables.ts";

/** Where a statement runs. */
export interface Scene {
  readonly run: Run;
  readonly tables: Tables;
  readonly server: SimPostgres;
  readonly session: Session;
}

/** One statement of the engine's as a function over the tables; known by the statement's name. */
export type SimStatement = (scene: Scene, values: readonly unknown[]) => Steps<readonly object[]>;

export type SimStatements = Readonly<Record<string, SimStatement>>;

/** A statement that only reads, and so never waits. */
export const reading = (
  read: (scene: Scene, values: readonly unknown[]) => readonly object[],
): SimStatement =>
  // oxlint-disable-next-line require-yield
  function* (scene, values) {
    return read(scene, values);
  };
