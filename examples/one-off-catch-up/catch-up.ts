import { consumer, Tidemill } from "tidemill";

const url = process.env["DATABASE_URL"];
await Tidemill.migrate(url);
await using mill = await Tidemill.connect(url);
await mill.transaction(async (tx) => {
  await tx.query("CREATE TABLE IF NOT EXISTS visits (page TEXT PRIMARY KEY, count BIGINT)");
});

const visits = consumer("visits_v1", {
  eventTypes: ["PageVisited"],
  async handle(event, { tx }) {
    await tx.query(
      `INSERT INTO visits VALUES ($1, 1)
           ON CONFLICT (page) DO UPDATE SET count = visits.count + 1`,
      [event.streamId],
    );
  },
});

for (const page of ["home", "pricing", "home"]) {
  const events = Array.from({ length: 400 }, () => ({ type: "PageVisited" }));
  await mill.append({ type: "Page", id: page }, events);
}

// Handles everything up to the present end of the log, then returns: for a cron job, a backfill
// or a test. It is a worker like any other while it runs, so it may run beside others.
console.log(`handled up to position ${await mill.runToHead({ consumers: [visits] })}`);
console.log(`nothing new: still ${await mill.runToHead({ consumers: [visits] })}`);

const { rows } = await mill.transaction((tx) =>
  tx.query("SELECT page, count::int FROM visits ORDER BY page"),
);
console.log(JSON.stringify(rows));
