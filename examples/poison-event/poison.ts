import { consumer, type EventHandler, Tidemill } from "tidemill";

const url = process.env["DATABASE_URL"];
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);
await mill.transaction(async (tx) => {
  await tx.query("CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents BIGINT)");
});

const balances = (handle: EventHandler) => consumer("balances_v1", { handle });

/** Yesterday's code: it does not know that an amount may be missing. */
const buggy: EventHandler = async (event, { tx }) => {
  const { cents } = event.data as { cents?: number };
  if (cents === undefined) throw new TypeError("cents is missing");
  await tx.query(
    `INSERT INTO balance VALUES ($1, $2)
         ON CONFLICT (account) DO UPDATE SET cents = balance.cents + excluded.cents`,
    [event.streamId, cents],
  );
};

/** Today's code. */
const fixed: EventHandler = async (event, context) => {
  const { cents = 0 } = event.data as { cents?: number };
  if (cents !== 0) await buggy(event, context);
};

const account = { type: "Account", id: "1" };
await mill.append(account, [
  { type: "Deposited", data: { cents: 100 } },
  { type: "Deposited", data: {} },
  { type: "Deposited", data: { cents: 11 } },
]);

const options = { maxConsecutiveFailures: 3, pollInterval: 20, maxPollInterval: 200 };
const before = await mill.startWorker({ consumers: [balances(buggy)], ...options });

// waitFor does not wait for a consumer that will not come.
const { position } = (await mill.readStream(account)).at(-1) ?? { position: 0n };
await mill.waitFor("balances_v1", { position }).catch((error: unknown) => {
  console.log(error instanceof Error ? error.message : error);
});
const [stopped] = await mill.listConsumers();
console.log(`${stopped?.state} after ${stopped?.poison?.failures} failures at event 2`);
console.log(`because: ${stopped?.poison?.error}`);
await before.stop();

// Deploy the fix, then say that the consumer may go on. It continues with the same event.
await mill.startWorker({ consumers: [balances(fixed)], ...options });
await mill.consumers.resume("balances_v1");
await mill.waitFor("balances_v1", { position });
const { rows } = await mill.transaction((tx) => tx.query("SELECT cents::int FROM balance"));
console.log(JSON.stringify(rows));
