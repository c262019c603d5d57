import pg from "pg";
import { Tidemill, WrongExpectedVersionError } from "tidemill";

const url = process.env["DATABASE_URL"];
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);
const client = new pg.Client({ connectionString: url });
await client.connect();
await client.query(
  "CREATE TABLE IF NOT EXISTS seats (id TEXT PRIMARY KEY, taken_by TEXT NOT NULL)",
);

const seat = { type: "Seat", id: "12A" };

/** The row and the event commit together, or neither does. */
async function take(passenger: string, seenVersion: number): Promise<string> {
  await client.query("BEGIN");
  try {
    const { toVersion } = await mill.append(seat, [{ type: "SeatTaken", data: { passenger } }], {
      tx: client,
      expectedVersion: seenVersion,
    });
    await client.query("INSERT INTO seats VALUES ($1, $2)", [seat.id, passenger]);
    await client.query("COMMIT");
    return `${passenger} has the seat, version ${toVersion}`;
  } catch (error) {
    if (!(error instanceof WrongExpectedVersionError)) {
      await client.query("ROLLBACK");
      throw error;
    }
    // Nothing was written and the transaction is still usable: ask it who was faster.
    const { rows } = await client.query<{ taken_by: string }>("SELECT taken_by FROM seats");
    await client.query("ROLLBACK");
    return `${passenger} is too late: ${error.message}, taken by ${rows[0]?.taken_by}`;
  }
}

// Both looked at the seat when nothing had happened to it: version 0.
console.log(await take("Ada", 0));
console.log(await take("Grace", 0));

const events = await mill.readStream(seat);
console.log(`${events.length} event, ${JSON.stringify(events[0]?.data)}`);
await client.end();
