import { expect, it } from "vitest";
import { extend, HANDED_OUT, newQueue, RemoteHand, tenant } from "./remote-hand.ts";
import { ACME_WORKER, type Scene, scene } from "./scene.ts";

async function post(at: Scene, path: string, body: object): Promise<[number, unknown]> {
  const { host, port } = at.server.address("http");
  const answer = await fetch(`http://${host}:${port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${ACME_WORKER}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return [answer.status, await answer.json()];
}

it("a claim whose time is up is lost, before anybody has taken the task from it", async () => {
  const at = await scene({ server: { ...HANDED_OUT, http: { port: 0 } } });
  const mails = newQueue({ timeoutSeconds: 3_600 });
  const { id } = await at.mill.enqueue(mails, 1, { tenant });
  const wanted = { queues: [mails.name], waitSeconds: 20, leaseSeconds: 600 };
  const [, claimed] = await post(at, "/v1/claims", wanted);
  const { rows } = await at.database.pool.query<{ generation: number; claimId: string }>(
    `UPDATE tidemill.tasks
        SET claimed_at = claimed_at - INTERVAL '2 hours', lease_until = NOW() - INTERVAL '1 second'
      WHERE id = $1
     RETURNING lease_generation AS generation, claim_id AS "claimId"`,
    [id],
  );
  const [claim] = rows;
  if (claim === undefined) throw new Error("nobody holds the task");
  const hand = await RemoteHand.at(at).hello();
  expect(await hand.act([{ taskId: id, ...claim }, extend(60)])).toEqual(["TM_LEASE_LOST"]);
  const { token } = (claimed as { tasks: { token: string }[] }).tasks[0] ?? {};
  expect(await post(at, `/v1/tasks/${id}/heartbeat`, { token })).toMatchObject([
    409,
    { code: "TM_LEASE_LOST" },
  ]);
  expect(await hand.act()).toEqual([]); // The server is still there.
});
