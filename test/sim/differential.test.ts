import { expect, it } from "vitest";
import { Connection } from "../../src/db/database.ts";
import { shapePlans } from "../../src/db/sql/session.ts";
import { onCleanup, testDatabase } from "../support/database.ts";
import { engineDatabase } from "../support/engine-database.ts";
import { Random } from "../support/random.ts";
import { postgresFacts, simFacts } from "./differential/facts.ts";
import { Moves } from "./differential/moves.ts";
import { PostgresSide, type Sent, SimSide } from "./differential/sides.ts";
import { startPostgres, startSim } from "./differential/start.ts";
import { runSeeds, type Seeds, timeoutOf } from "./seeds.ts";
import { startServer } from "./server.ts";
import { Timeline } from "./timeline.ts";

/*
 * The simulated server must mean what PostgreSQL means. The same sessions send the same statements
 * of the engine's in the same order to both; after each, the same sessions must have the same
 * answers, and the others wait on both; in the end the tables must be the same.
 */

const SEEDS: Seeds = { file: "differential.test.ts", count: 400, seconds: 15 };
const SESSIONS = 3;
const MOVES = 30;
/** Which rows it has locked when its leader is no leader is up to the planner: it is sent alone. */
const ALONE = new Set(["moveFree"]);

it(
  "the simulated server answers as PostgreSQL does",
  async () => {
    const rig = await openRig();
    let waits = 0;
    const scripts = await runSeeds(SEEDS, async (seed, log) => {
      waits += await new Script(rig, seed, log).run();
    });
    if (scripts > 20) expect(waits).toBeGreaterThan(scripts / 2);
  },
  timeoutOf(SEEDS),
);

async function openRig() {
  const database = await testDatabase();
  const db = engineDatabase(database.url);
  onCleanup(() => db.close());
  const sides = await Promise.all(
    Array.from({ length: SESSIONS }, async () => {
      const client = await database.session();
      const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      await shapePlans(new Connection(client, db)); // As a worker does: one plan and no other.
      return new PostgresSide(client, rows[0]?.pid ?? 0, db);
    }),
  );
  return { sides, admin: await database.session() };
}

type Rig = Awaited<ReturnType<typeof openRig>>;

class Script {
  readonly #rig: Rig;
  readonly #random: Random;
  readonly #log: string[];
  readonly #timeline = new Timeline();
  readonly #scene = startServer(this.#timeline, undefined);
  readonly #sides = Array.from({ length: SESSIONS }, () => new SimSide(this.#scene));
  readonly #isOpen = this.#sides.map(() => false);
  #waits = 0;

  constructor(rig: Rig, seed: number, log: string[]) {
    this.#rig = rig;
    this.#random = new Random(seed);
    this.#log = log;
  }

  /** Gives how often somebody waited. */
  async run(): Promise<number> {
    startSim(this.#scene);
    for (const side of this.#rig.sides) side.answer = "";
    await startPostgres(this.#rig.admin);
    const moves = new Moves(this.#random, this.#scene);
    // Of two that wait for the same end, either may be first; and deadlocks are ended by time.
    let isOver = false;
    for (let count = 0; count < MOVES && !isOver; count += 1) {
      const free = this.#free();
      const place = free[this.#random.below(free.length)] ?? 0;
      const move = moves.draw();
      const [name, sent] = this.#draw(place, move.name, move.make);
      await this.#send(place, sent, name);
      isOver = this.#free().length < 2 || this.#isDeadlocked();
    }
    if (!isOver) await this.#rollBackAll();
    await this.#end();
    if (!isOver) expect(simFacts(this.#scene)).toEqual(await postgresFacts(this.#rig.admin));
    return this.#waits;
  }

  /** One after the other, so that whoever waits goes on. */
  async #rollBackAll(): Promise<void> {
    for (;;) {
      const place = this.#free().find((one) => this.#isOpen[one] === true);
      if (place === undefined) return;
      await this.#send(place, "ROLLBACK", "ROLLBACK");
    }
  }

  #free(): number[] {
    return [...this.#sides.keys()].filter((place) => this.#sides[place]?.answer !== undefined);
  }

  #isDeadlocked(): boolean {
    return this.#sides.some(({ session }) => this.#scene.server.isDeadlocked(session));
  }

  #draw(place: number, name: string, make: Exclude<Sent, string>): [string, Sent] {
    const isOpen = this.#isOpen[place] === true;
    if (!isOpen && this.#random.chance(0.3)) return ["BEGIN", "BEGIN"];
    if (isOpen && (this.#random.chance(0.4) || ALONE.has(name))) {
      const end = this.#random.chance(0.8) ? "COMMIT" : "ROLLBACK";
      return [end, end];
    }
    return [name, make];
  }

  async #send(place: number, sent: Sent, name: string): Promise<void> {
    if (sent === "BEGIN") this.#isOpen[place] = true;
    else if (typeof sent === "string") this.#isOpen[place] = false;
    this.#sides[place]?.send(sent);
    await this.#timeline.pass(1);
    const values = typeof sent === "string" ? "" : JSON.stringify(this.#sides[place]?.values);
    this.#log.push(`${place} ${name} ${values} ${this.#sides[place]?.answer ?? "waits"}`);
    this.#rig.sides[place]?.send(sent);
    await this.#quiet();
    const sim = this.#sides.map((side) => side.answer ?? "waits");
    const real = this.#rig.sides.map((side) => side.answer ?? "waits");
    this.#waits += sim.filter((answer) => answer === "waits").length;
    expect(sim).toEqual(real);
  }

  /** Until every statement that PostgreSQL was sent is answered, or waits for another session. */
  async #quiet(): Promise<void> {
    const { sides, admin } = this.#rig;
    for (;;) {
      const open = sides.filter((side) => side.answer === undefined);
      if (open.length === 0) return;
      const { rows } = await admin.query<{ pid: number }>({
        name: "blocked",
        text: `SELECT pid FROM unnest($1::int[]) AS one(pid)
                WHERE pg_blocking_pids(pid) && $2::int[]`,
        values: [open.map(({ pid }) => pid), sides.map(({ pid }) => pid)],
      });
      const blocked = new Set(rows.map(({ pid }) => pid));
      if (open.every((side) => side.answer === undefined && blocked.has(side.pid))) return;
    }
  }

  /** Whoever waits is told to stop; what is open is rolled back. */
  async #end(): Promise<void> {
    const waiting = this.#rig.sides.filter((side) => side.answer === undefined);
    for (const { pid } of waiting) {
      await this.#rig.admin.query("SELECT pg_cancel_backend($1)", [pid]);
    }
    await Promise.all(this.#rig.sides.map((side) => side.asked));
    for (const { client } of this.#rig.sides) await client.query("ROLLBACK");
    for (const { session } of this.#sides) this.#scene.server.terminate(session);
    await this.#timeline.pass(1);
  }
}
