import pg from "pg";
import { silentLogger } from "../../src/base/log.ts";
import { Connection, Database } from "../../src/db/database.ts";
import { resolveNames } from "../../src/db/names.ts";
import { onCleanup, type TestDatabase } from "./database.ts";
import { Random } from "./random.ts";

/** One session of a race. Each statement that it sends is a move, and waits for its turn. */
export interface Racer {
  readonly name: string;
  /** For the functions of the engine. */
  readonly connection: Connection;
  readonly client: pg.Client;
  /** BEGIN shows nothing to anybody and is no move; the end is one. */
  transaction<T>(work: (tx: Connection) => Promise<T>, end?: "COMMIT" | "ROLLBACK"): Promise<T>;
}

export type Script = (racer: Racer) => Promise<unknown>;

/** What happened in one order of moves. */
export interface Run {
  /** Who sent what, in order. */
  readonly moves: readonly string[];
  /** Who committed, in order. */
  readonly commits: readonly string[];
  /** What each script returned; throws what it threw. */
  result<T>(this: void, name: string): T;
  /** What the script threw, if it did. */
  failure(this: void, name: string): unknown;
}

export interface Race {
  readonly scripts: Readonly<Record<string, Script>>;
  /** Before each run: the rows as the race finds them. */
  reset(): Promise<unknown>;
  /** After each run: what must be true of the tables, whatever the order. Names how it ended. */
  check(run: Run): Promise<string> | string;
  /** So many orders, drawn with the seed, instead of all of them. */
  readonly sample?: { readonly count: number; readonly seed: number };
}

/** How many orders ended in which way: a race in which only one can happen proves little. */
export type Ends = Readonly<Record<string, number>>;

/** More orders than this are not run to the last one: the race must ask for a sample. */
const ORDERS_MAX = 1_000;

type Pick = (count: number) => number;

/**
 * Runs the scripts of a race in every order of their statements, as PostgreSQL's own isolation
 * tester does. Before each move all is quiet: a statement has been answered, or waits for a lock
 * that another racer has, and then its session is set aside until it is released.
 */
export class Interleaver {
  readonly #racers: GatedRacer[];
  readonly #watcher: pg.Client;
  #wake: () => void = () => {};

  private constructor(racers: GatedRacer[], watcher: pg.Client) {
    this.#racers = racers;
    this.#watcher = watcher;
    for (const racer of racers) racer.onChange = () => this.#wake();
  }

  /** With sessions for races of at most so many scripts. */
  static async open(database: TestDatabase, racers: number): Promise<Interleaver> {
    const db = new Database({
      url: database.url,
      names: resolveNames(),
      logger: silentLogger,
      poolSize: 1,
      applicationName: "interleaver",
      preparedStatements: true, // The name of a statement is the name of the move.
      queryTimeoutMs: 30_000,
      connectTimeoutMs: 10_000,
    });
    onCleanup(() => db.close());
    const sessions = await Promise.all(
      Array.from({ length: racers }, async () => {
        const client = await database.session();
        const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
        return new GatedRacer(client, rows[0]?.pid ?? 0, db);
      }),
    );
    return new Interleaver(sessions, await database.session());
  }

  /** Fails with the first order in which the check does. */
  async run(race: Race): Promise<Ends> {
    const { sample } = race;
    const ends: Record<string, number> = {};
    const runOnce = async (pick: Pick): Promise<void> => {
      const end = await this.#runOnce(race, pick);
      ends[end] = (ends[end] ?? 0) + 1;
    };
    if (sample !== undefined) {
      const random = new Random(sample.seed);
      for (let count = 0; count < sample.count; count += 1) {
        await runOnce((options) => random.below(options));
      }
      return ends;
    }
    const orders = new Orders();
    let count = 0;
    do {
      if (count === ORDERS_MAX) throw new Error(`more than ${count} orders: take a sample`);
      await runOnce(orders.begin());
      count += 1;
    } while (orders.advance());
    return ends;
  }

  async #runOnce(race: Race, pick: Pick): Promise<string> {
    await race.reset();
    const moves: string[] = [];
    const commits: string[] = [];
    const entries = Object.entries(race.scripts);
    const racers = this.#racers.slice(0, entries.length);
    const ends = entries.map(([name, script], index) => {
      const racer = racers[index];
      if (racer === undefined) throw new Error("open more racers");
      return racer.run(name, script, commits);
    });
    await this.#moveAll(racers, pick, moves);
    const settled = await Promise.all(ends);
    const endOf = (name: string): PromiseSettledResult<unknown> => {
      const end = settled[entries.findIndex(([one]) => one === name)];
      if (end === undefined) throw new Error(`no script ${name}`);
      return end;
    };
    try {
      return await race.check({
        moves,
        commits,
        result: <T>(name: string): T => {
          const end = endOf(name);
          if (end.status === "rejected") throw end.reason;
          return end.value as T;
        },
        failure: (name) => {
          const end = endOf(name);
          return end.status === "rejected" ? end.reason : undefined;
        },
      });
    } catch (error) {
      if (error instanceof Error) error.message = `${error.message}\nin: ${moves.join(", ")}`;
      throw error;
    }
  }

  async #moveAll(racers: readonly GatedRacer[], pick: Pick, moves: string[]): Promise<void> {
    for (;;) {
      await this.#quiet(racers);
      const ready = racers.filter((racer) => racer.state === "ready");
      const next = ready[ready.length < 2 ? 0 : pick(ready.length)];
      if (next !== undefined) {
        moves.push(`${next.name} ${next.label}`);
        next.move();
      } else if (racers.every((racer) => racer.state === "ended")) return;
      else await this.#change(); // All wait for each other: the server ends that.
    }
  }

  /** Until every statement is answered, or waits for a racer. */
  async #quiet(racers: readonly GatedRacer[]): Promise<void> {
    for (;;) {
      if (racers.some((racer) => racer.state === "thinking")) {
        await this.#change();
        continue;
      }
      const sent = racers.filter((racer) => racer.state === "sent");
      if (sent.length === 0) return;
      const blocked = await this.#findBlocked(sent, racers);
      if (sent.every((racer) => racer.state === "sent" && blocked.has(racer.pid))) return;
    }
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  async #findBlocked(
    sent: readonly GatedRacer[],
    racers: readonly GatedRacer[],
  ): Promise<Set<number>> {
    const { rows } = await this.#watcher.query<{ pid: number }>({
      name: "blocked",
      text: `SELECT pid FROM unnest($1::int[]) AS one(pid)
              WHERE pg_blocking_pids(pid) && $2::int[]`,
      values: [sent.map((racer) => racer.pid), racers.map((racer) => racer.pid)],
    });
    return new Set(rows.map((row) => row.pid));
  }
}

/** thinking → ready → sent → thinking … → ended. Only the interleaver lets it move. */
class GatedRacer implements Racer {
  readonly pid: number;
  readonly connection: Connection;
  readonly client: pg.Client;
  readonly #session: pg.Client;
  name = "";
  state: "thinking" | "ready" | "sent" | "ended" = "ended";
  label = "";
  onChange: () => void = () => {};
  move: () => void = () => {};
  #commits: string[] = [];

  constructor(session: pg.Client, pid: number, db: Database) {
    this.pid = pid;
    this.#session = session;
    const send = (query: string | pg.QueryConfig, values?: unknown[]): Promise<pg.QueryResult> =>
      this.#send(query, values);
    this.client = new Proxy(session, {
      get: (target, key): unknown => (key === "query" ? send : Reflect.get(target, key, target)),
    });
    this.connection = new Connection(this.client, db);
  }

  async run(
    name: string,
    script: Script,
    commits: string[],
  ): Promise<PromiseSettledResult<unknown>> {
    this.name = name;
    this.#commits = commits;
    this.state = "thinking";
    const [end] = await Promise.allSettled([script(this)]);
    this.#become("ended");
    return end;
  }

  async transaction<T>(
    work: (tx: Connection) => Promise<T>,
    end: "COMMIT" | "ROLLBACK" = "COMMIT",
  ): Promise<T> {
    await this.#session.query("BEGIN ISOLATION LEVEL READ COMMITTED");
    try {
      const result = await work(this.connection);
      const { command } = await this.client.query(end);
      if (command === "COMMIT") this.#commits.push(this.name);
      return result;
    } catch (error) {
      await this.#session.query("ROLLBACK");
      throw error;
    }
  }

  async #send(query: string | pg.QueryConfig, values?: unknown[]): Promise<pg.QueryResult> {
    if (this.state !== "thinking") throw new Error("a racer sends one statement at a time");
    this.label = labelOf(query);
    await new Promise<void>((resolve) => {
      this.move = () => {
        this.#become("sent");
        resolve();
      };
      this.#become("ready");
    });
    try {
      return await this.#session.query(query as string, values);
    } finally {
      this.#become("thinking");
    }
  }

  #become(state: GatedRacer["state"]): void {
    this.state = state;
    this.onChange();
  }
}

function labelOf(query: string | pg.QueryConfig): string {
  if (typeof query !== "string" && query.name !== undefined) return query.name;
  const text = typeof query === "string" ? query : query.text;
  return text.trim().replace(/\s+/g, " ").slice(0, 30);
}

/** All orders, one after the other, by the choices that led to them: the last one changes first. */
class Orders {
  readonly #path: { chosen: number; readonly of: number }[] = [];

  begin(): Pick {
    let depth = 0;
    return (of) => {
      const known = this.#path[depth];
      depth += 1;
      if (known !== undefined) return Math.min(known.chosen, of - 1);
      this.#path.push({ chosen: 0, of });
      return 0;
    };
  }

  /** False when all were taken. */
  advance(): boolean {
    for (let last = this.#path.at(-1); last !== undefined; last = this.#path.at(-1)) {
      last.chosen += 1;
      if (last.chosen < last.of) return true;
      this.#path.pop();
    }
    return false;
  }
}
