import { expect, it } from "vitest";
import { UnavailableError } from "../../../src/base/errors.ts";
import { checkAlive } from "../../../src/db/sql/session.ts";
import { onCleanup, testDatabase } from "../../support/database.ts";
import { engineDatabase } from "../../support/engine-database.ts";
import { startRelay } from "../../support/relay.ts";

const READY = Buffer.from("Z\0\0\0\x05I", "latin1");

/** What the server says to a session that somebody ended: pg_terminate_backend, or a restart. */
function endedByPerson(): Buffer {
  const text = "terminating connection due to administrator command";
  const fields = Buffer.from(`SFATAL\0VFATAL\0C57P01\0M${text}\0\0`, "latin1");
  const head = Buffer.alloc(5);
  head.write("E", "latin1");
  head.writeInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}

it("is told to who asks, also when the session ends in the breath that greets it", async () => {
  const { url } = await testDatabase();
  let greetings = 0;
  const relay = await startRelay(url, (client, server) => {
    client.pipe(server);
    server.on("data", (bytes) => {
      const isGreeting = bytes.subarray(-READY.length).equals(READY);
      greetings += isGreeting ? 1 : 0;
      if (isGreeting && greetings === 1) client.end(Buffer.concat([bytes, endedByPerson()]));
      else client.write(bytes);
    });
  });
  const db = engineDatabase(relay.url, { poolSize: 1 });
  onCleanup(() => db.close());
  // An error of a client that nobody listens to would end the process, and so this test run.
  await expect(checkAlive(db)).rejects.toThrow(UnavailableError);
  await checkAlive(db);
});
