import { beforeEach, describe, expect, it } from "vitest";
import { ConfigError, consumer } from "../../../src/index.ts";
import { type TestDatabase, testDatabase } from "../../support/database.ts";
import { runCli, STEADY, tableCounts } from "./cli.ts";

let database: TestDatabase;

/** One line that says what to do, the right exit code, and nothing written. */
async function expectRefused(
  args: string[],
  expected: { readonly code: 1 | 2; readonly says: RegExp; readonly url?: string },
): Promise<void> {
  const before = await tableCounts(database.pool);
  const url = expected.url ?? database.url;
  const { code, stdout, stderr } = await runCli(args, { env: { DATABASE_URL: url } });
  expect(stderr).toMatch(/^tidemill: [^\n]+\n$/);
  expect(stderr).toMatch(expected.says);
  expect({ code, stdout }).toEqual({ code: expected.code, stdout: "" });
  expect(await tableCounts(database.pool)).toEqual(before);
}

describe("a wrong command line", () => {
  beforeEach(async () => {
    database = await testDatabase({ migrated: false });
  });

  it("an unknown option is refused with the one that was meant", async () => {
    await expectRefused(["status", "--jsno"], { code: 2, says: /--jsno.*Did you mean --json/ });
  });

  it("an unknown option of a subcommand too, global ones included", async () => {
    const args = ["migrate", "generate", "--event-table", "x"];
    await expectRefused(args, { code: 2, says: /Did you mean --events-table/ });
  });

  it("an unknown command is refused with the one that was meant", async () => {
    await expectRefused(["statsu"], { code: 2, says: /'statsu'.*Did you mean status/ });
  });

  it("a missing database address is named, and the way to have one", async () => {
    await expectRefused(["status"], {
      code: 2,
      says: /set DATABASE_URL or --database-url, or start one with "tidemill dev"/,
      url: "",
    });
  });

  it("an address of another kind of database is refused", async () => {
    await expectRefused(["status"], {
      code: 2,
      says: /must begin with postgres:\/\//,
      url: "mysql://localhost/x",
    });
  });

  it("numbers out of range are refused", async () => {
    await Promise.all([
      expectRefused(["dev", "--rate", "-1"], { code: 2, says: /--rate.*whole number/ }),
      expectRefused(["consumer", "rewind", "x", "--to", "later"], {
        code: 2,
        says: /--to.*position/,
      }),
      expectRefused(["consumer", "repartition", "x", "--partitions", "0"], {
        code: 2,
        says: /--partitions.*from 1 to 1024/,
      }),
    ]);
  });

  it("unusable table names are refused", async () => {
    await Promise.all([
      expectRefused(["migrate", "--events-table", "my events"], {
        code: 2,
        says: /"my events" is not a usable SQL name: use letters/,
      }),
      expectRefused(["migrate", "--worker-nodes-table", "a.b.c"], {
        code: 2,
        says: /use table or schema\.table/,
      }),
      expectRefused(["migrate", "--schema", `s${"x".repeat(63)}`], {
        code: 2,
        says: /63 bytes/,
      }),
      expectRefused(["migrate", "--events-table", "x", "--stream-heads-table", "x"], {
        code: 2,
        says: /are both/,
      }),
    ]);
  });
});

describe("a database that is not ready", () => {
  it("one that cannot be reached is named, and what to check", async () => {
    database = await testDatabase({ migrated: false });
    await expectRefused(["status"], {
      code: 1,
      says: /cannot reach the database at 127.0.0.1:1\/nowhere .*ECONNREFUSED.*check that it runs/,
      url: "postgres://nobody@127.0.0.1:1/nowhere",
    });
    const missing = new URL(database.url);
    missing.pathname = "/no_such_database";
    await expectRefused(["migrate"], {
      code: 2,
      says: /refuses the connection: database "no_such_database" does not exist/,
      url: missing.href,
    });
  });

  it("one without tables asks for a migration", async () => {
    database = await testDatabase({ migrated: false });
    const says = /schema tidemill has no tidemill tables; run "tidemill migrate"/;
    await Promise.all([
      expectRefused(["status"], { code: 1, says }),
      expectRefused(["consumer", "list"], { code: 1, says }),
    ]);
  });

  it("an older schema asks for a migration", async () => {
    database = await testDatabase();
    await database.pool.query("DELETE FROM tidemill.migrations WHERE version > 1");
    await expectRefused(["status"], { code: 1, says: /is at version 1 .*run "tidemill migrate"/ });
  });

  it("a newer schema asks for a newer program", async () => {
    database = await testDatabase();
    await database.pool.query("INSERT INTO tidemill.migrations VALUES (999, 'future', 'x')");
    await Promise.all([
      expectRefused(["status"], { code: 1, says: /version 999, newer .*upgrade tidemill/ }),
      expectRefused(["migrate"], { code: 1, says: /version 999, newer .*upgrade tidemill/ }),
    ]);
  });

  it("a schema that was migrated for other names says for which", async () => {
    database = await testDatabase();
    const says = /migrated for other table names \(.*"events".*\); use those names, or another/;
    await Promise.all([
      expectRefused(["status", "--events-table", "my_events"], { code: 1, says }),
      expectRefused(["migrate", "--column-family", "aggregate"], { code: 1, says }),
    ]);
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
    await Promise.all([
      expectRefused(["consumer", "pause", "unknown"], { code: 1, says }),
      expectRefused(["consumer", "retire", "unknown", "--yes"], { code: 1, says }),
    ]);
  });

  it("a rewind does not go forward", async () => {
    await expectRefused(["consumer", "rewind", "known", "--to", "99", "--yes"], {
      code: 1,
      says: /is at 1: rewind goes back, not forward to 99/,
    });
  });

  it("a skip needs a reason that is not blank, and something to skip", async () => {
    const skip = ["consumer", "skip", "known", "--yes"];
    await Promise.all([
      expectRefused(skip, { code: 2, says: /'--reason <text>' not specified/ }),
      expectRefused([...skip, "--reason", " "], { code: 1, says: /skip needs a reason/ }),
      expectRefused([...skip, "--reason", "x"], { code: 1, says: /nothing to skip/ }),
    ]);
  });

  it("what cannot be undone needs --yes where nobody can answer", async () => {
    const says = /add --yes/;
    await Promise.all([
      expectRefused(["consumer", "rewind", "known", "--to", "0"], { code: 2, says }),
      expectRefused(["consumer", "retire", "known"], { code: 2, says }),
      expectRefused(["consumer", "skip", "known", "--reason", "x"], { code: 2, says }),
    ]);
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
