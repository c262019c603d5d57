import { beforeEach, describe, expect, it } from "vitest";
import { ConfigError, consumer } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { STEADY, tableCounts } from "./cli.ts";
import { expectAllRefused, type Refusal } from "./refused.ts";

let database: TestDatabase;

const refuses = (...refusals: Refusal[]): Promise<void> => expectAllRefused(database, refusals);

describe("a wrong command line", () => {
  beforeEach(async () => {
    database = await testDatabase({ migrated: false });
  });

  it("an unknown option is refused with the one that was meant", async () => {
    await refuses([["status", "--jsno"], 2, /--jsno.*Did you mean --json/]);
  });

  it("an unknown option of a subcommand too, global ones included", async () => {
    const args = ["migrate", "generate", "--event-table", "x"];
    await refuses([args, 2, /Did you mean --events-table/]);
  });

  it("an unknown command is refused with the one that was meant", async () => {
    const says = /'statsu'; did you mean "tidemill status"\?/;
    await refuses([["statsu"], 2, says]);
  });

  it("a missing database address is named, and the way to have one", async () => {
    await refuses([
      ["status"],
      2,
      /set DATABASE_URL or --database-url, or start one with "tidemill dev"/,
      "",
    ]);
  });

  it("an address of another kind of database is refused", async () => {
    await refuses([["status"], 2, /must begin with postgres:\/\//, "mysql://localhost/x"]);
  });

  it("numbers out of range are refused", async () => {
    await refuses(
      [["dev", "--rate", "-1"], 2, /--rate.*whole number/],
      [["consumer", "rewind", "x", "--to", "later"], 2, /--to.*position/],
      [["consumer", "repartition", "x", "--partitions", "0"], 2, /--partitions.*from 1 to 1024/],
    );
  });

  it("unusable table names are refused", async () => {
    await refuses(
      [
        ["migrate", "--events-table", "my events"],
        2,
        /"my events" is not a usable SQL name: use letters/,
      ],
      [["migrate", "--worker-nodes-table", "a.b.c"], 2, /use table or schema\.table/],
      [["migrate", "--schema", `s${"x".repeat(63)}`], 2, /63 bytes/],
      [["migrate", "--events-table", "x", "--stream-heads-table", "x"], 2, /are both/],
    );
  });
});

describe("a database that is not ready", () => {
  it("one that cannot be reached is named, and what to check", async () => {
    database = await testDatabase({ migrated: false });
    await refuses([
      ["status"],
      1,
      /cannot reach the database at 127.0.0.1:1\/nowhere .*ECONNREFUSED.*check that it runs/,
      "postgres://nobody@127.0.0.1:1/nowhere",
    ]);
    const missing = new URL(database.url);
    missing.pathname = "/no_such_database";
    await refuses([
      ["migrate"],
      2,
      /refuses the connection: database "no_such_database" does not exist/,
      missing.href,
    ]);
  });

  it("one without tables asks for a migration", async () => {
    database = await testDatabase({ migrated: false });
    const says = /schema tidemill has no tidemill tables; run "tidemill migrate"/;
    await refuses([["status"], 1, says], [["consumer", "list"], 1, says]);
  });

  it("an older schema asks for a migration", async () => {
    database = await testDatabase();
    await database.pool.query("DELETE FROM tidemill.migrations WHERE version > 1");
    await refuses([["status"], 1, /is at version 1 .*run "tidemill migrate"/]);
  });

  it("a newer schema asks for a newer program", async () => {
    database = await testDatabase();
    await database.pool.query("INSERT INTO tidemill.migrations VALUES (999, 'future', 'x')");
    await refuses(
      [["status"], 1, /version 999, newer .*upgrade tidemill/],
      [["migrate"], 1, /version 999, newer .*upgrade tidemill/],
    );
  });

  it("a schema that was migrated for other names says for which", async () => {
    database = await testDatabase();
    const says = /migrated for other table names \(.*"events".*\); use those names, or another/;
    await refuses(
      [["status", "--events-table", "my_events"], 1, says],
      [["migrate", "--column-family", "aggregate"], 1, says],
    );
  });
});

describe("a wrong wish for a consumer", () => {
  beforeEach(async () => {
    database = await testDatabase();
    const mill = await database.connect();
    const known = consumer("known", { handle: () => {} });
    await mill.append({ type: "Order", id: "1" }, [{ type: "OrderPaid" }]);
    await mill.runToHead({ consumers: [known], ...STEADY });
  });

  it("an unknown consumer is refused, and where to find the names", async () => {
    const says = /no consumer "unknown"; "tidemill consumer list" names them/;
    await refuses(
      [["consumer", "pause", "unknown"], 1, says],
      [["consumer", "retire", "unknown", "--yes"], 1, says],
    );
  });

  it("a rewind does not go forward", async () => {
    await refuses([
      ["consumer", "rewind", "known", "--to", "99", "--yes"],
      1,
      /is at 1: rewind goes back, not forward to 99/,
    ]);
  });

  it("a skip needs a reason that is not blank, and something to skip", async () => {
    const skip = ["consumer", "skip", "known", "--yes"];
    await refuses(
      [skip, 2, /'--reason <text>' not specified/],
      [[...skip, "--reason", " "], 1, /skip needs a reason/],
      [[...skip, "--reason", "x"], 1, /nothing to skip/],
    );
  });

  it("what cannot be undone needs --yes where nobody can answer", async () => {
    const says = /add --yes/;
    await refuses(
      [["consumer", "rewind", "known", "--to", "0"], 2, says],
      [["consumer", "retire", "known"], 2, says],
      [["consumer", "skip", "known", "--reason", "x"], 2, says],
    );
  });

  it("a consumer without a name, and two of one name, are refused by the library", async () => {
    const before = await tableCounts(database.pool);
    const mill = await database.connect();
    expect(() => consumer("", { handle: () => {} })).toThrow(ConfigError);
    expect(() => consumer("  ", { handle: () => {} })).toThrow(/needs a name/);
    const twice = [consumer("same", { handle: () => {} }), consumer("same", { handle: () => {} })];
    const started = mill.startWorker({ consumers: twice, ...STEADY });
    await expect(started).rejects.toThrow('duplicate consumer name "same"');
    expect(await tableCounts(database.pool)).toEqual(before);
  });
});
