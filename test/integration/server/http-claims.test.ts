import { beforeAll, describe, expect, it } from "vitest";
import { JsonText } from "../../../src/base/json-text.ts";
import type { Caller } from "../../../src/server/auth/caller.ts";
import type { ClaimDesk, ClaimRequest, ClaimToken } from "../../../src/server/http/claim-desk.ts";
import { LeaseLostError } from "../../../src/tasks/task.ts";
import { openScene, type Scene } from "./http-scene.ts";

const CLAIM_ID = "0199a0b1-0000-4000-8000-000000000001";
const TOKEN = `3.${CLAIM_ID}`;

/** What the endpoints asked of the desk, and nothing else: how a desk works is tested elsewhere. */
class RecordingDesk implements ClaimDesk {
  readonly asked: unknown[][] = [];
  tasks: string[] = [];
  lost = false;
  found: ClaimToken | "not-found" | "not-owner" | "not-in-progress" = "not-found";

  #record<T>(answer: T, act: string, ...given: unknown[]): Promise<T> {
    const [caller, token, ...more] = given;
    this.asked.push([act, (caller as Caller).tenant, token, ...more]);
    if (this.lost) return Promise.reject(new LeaseLostError(token as ClaimToken));
    return Promise.resolve(answer);
  }

  claim(request: ClaimRequest) {
    this.asked.push(["claim", request]);
    const now = new Date(0);
    return Promise.resolve(
      this.tasks.map((id) => ({
        id,
        queue: "mails",
        kind: undefined,
        payload: new JsonText('{"n": 1.0}'),
        bytes: undefined,
        contentType: "application/json",
        priority: 5,
        tenant: request.tenant,
        partitionKey: undefined,
        attempt: 1,
        maxAttempts: 5,
        createdAt: now,
        runAt: now,
        traceParent: undefined,
        traceState: undefined,
        token: { taskId: id, generation: 3, claimId: CLAIM_ID },
        holder: CLAIM_ID,
        claimedAt: now,
        leaseUntil: now,
        webhook: undefined,
      })),
    );
  }

  complete = (...given: unknown[]) => this.#record(undefined, "complete", ...given);
  fail = (...given: unknown[]) => this.#record(undefined, "fail", ...given);
  nack = (...given: unknown[]) =>
    this.#record({ delaySeconds: 7, isDead: false }, "nack", ...given);
  abandon = (...given: unknown[]) => this.#record(undefined, "abandon", ...given);
  extend = (...given: unknown[]) => this.#record(new Date(0), "extend", ...given);
  find = () => Promise.resolve(this.found);
}

/** Of a task that is not in the database. */
const UNREADABLE = "4711";
const CLAIMED = {
  id: UNREADABLE,
  command: "mails",
  payload: '{"n": 1.0}',
  status: "IN_PROGRESS",
  lastKnownLocation: "INPROG_SET",
  workerId: CLAIM_ID,
  leaseUntil: "1970-01-01T00:00:00Z",
  attempts: 1,
  tenantId: "acme",
};

let scene: Scene;
let desk: RecordingDesk;
let id: string;

beforeAll(async () => {
  const plain = await openScene();
  await plain.mill.queues.ensure("mails");
  id = (await plain.mill.enqueue("mails", 1, { tenant: "acme" })).id;
  desk = new RecordingDesk();
  scene = plain.another({}, { desk });
});

const as = "worker";

describe("a claim", () => {
  it("asks for what the caller may have, and gives a token with each task", async () => {
    desk.tasks = [id];
    const reply = await scene.call("POST", "/v1/claims", {
      as,
      json: { queues: ["mails"], count: 5, leaseSeconds: 30, waitSeconds: 2 },
    });
    expect(reply.status, reply.text).toBe(200);
    expect(reply.text).toContain('"payload":{"n": 1.0}');
    expect(reply.body.tasks).toMatchObject([{ id, token: TOKEN, attempt: 1 }]);
    expect(desk.asked.pop()).toMatchObject([
      "claim",
      { tenant: "acme", queues: ["mails"], count: 5, leaseSeconds: 30, waitMs: 2_000 },
    ]);
    desk.tasks = [];
    const none = await scene.call("POST", "/v1/claims", { as });
    expect(none.body.tasks).toEqual([]);
    expect(desk.asked.pop()).toMatchObject(["claim", { queues: "all", count: 1, waitMs: 0 }]);
    expect((await scene.call("POST", "/v1/claims", { as: "producer" })).status).toBe(403);
    for (const json of [{ count: 0 }, { count: 101 }, { waitSeconds: 61 }, { queues: [] }]) {
      expect((await scene.call("POST", "/v1/claims", { as, json })).status).toBe(400);
    }
  });

  it.each([
    ["complete", { result: 1 }, [new JsonText("1")]],
    ["complete", {}, [undefined]],
    ["fail", { reason: "no" }, [{ reason: "no", retry: true }]],
    ["fail", { reason: "no", retry: false }, [{ reason: "no", retry: false }]],
    ["nack", { delaySeconds: 3 }, [{ delaySeconds: 3, reason: undefined }]],
    ["abandon", {}, []],
    ["heartbeat", { extendSeconds: 9 }, [9]],
  ])("is ended or held by its token: %s %j", async (act, json, rest) => {
    const path = `/v1/tasks/${id}/${act}`;
    const reply = await scene.call("POST", path, { as, json: { ...json, token: TOKEN } });
    expect(reply.status, reply.text).toBe(200);
    const token = { taskId: id, generation: 3, claimId: CLAIM_ID };
    const name = act === "heartbeat" ? "extend" : act;
    expect(desk.asked.pop()).toEqual([name, "acme", token, ...rest]);
    desk.lost = true;
    const lost = await scene.call("POST", path, { as, json: { ...json, token: TOKEN } });
    desk.lost = false;
    expect([lost.status, lost.body["code"]]).toEqual([409, "TM_LEASE_LOST"]);
    for (const bad of ["", "x", "1.x", `-1.${CLAIM_ID}`]) {
      const refused = await scene.call("POST", path, { as, json: { ...json, token: bad } });
      expect(refused.status).toBe(400);
    }
    const stranger = await scene.call("POST", path, {
      as: "reader",
      json: { ...json, token: TOKEN },
    });
    expect(stranger.status).toBe(403);
  });
});

describe("a claim of CodeQ's clients", () => {
  const call = (path: string, json?: object) =>
    scene.call("POST", `/v1/codeq/tasks${path}`, { as, ...(json === undefined ? {} : { json }) });

  it("gives a task or nothing, and asks for nothing behind the claim", async () => {
    desk.tasks = [UNREADABLE];
    const one = await call("/claim", { commands: ["mails"], waitSeconds: 99, leaseSeconds: 0 });
    expect([one.status, one.body]).toEqual([200, expect.objectContaining(CLAIMED)]);
    expect(desk.asked.pop()).toMatchObject([
      "claim",
      { queues: ["mails"], count: 1, leaseSeconds: undefined, waitMs: 30_000 },
    ]);
    const hasty = scene.another({ waitSecondsMax: 5 }, { desk });
    await hasty.call("POST", "/v1/codeq/tasks/claim", { as, json: { waitSeconds: 99 } });
    expect(desk.asked.pop()).toMatchObject(["claim", { waitMs: 5_000 }]);
    const many = await call("/claim/batch", { count: 2 });
    expect(many.body.tasks).toHaveLength(1);
    desk.tasks = [];
    expect((await call("/claim")).status).toBe(204);
    expect((await call("/claim/batch", { count: 10 })).status).toBe(204);
    expect((await call("/claim/batch", { count: 11 })).body).toEqual({ error: "invalid body" });
  });

  it("is acted on by its holder, without a token", async () => {
    desk.found = { taskId: id, generation: 3, claimId: CLAIM_ID };
    expect((await call(`/${id}/heartbeat`)).body).toEqual({ ok: true });
    expect((await call(`/${id}/abandon`)).body).toEqual({ status: "requeued" });
    expect((await call(`/${id}/nack`, { delaySeconds: 7 })).body).toEqual({
      status: "requeued",
      delaySeconds: 7,
    });
    const done = await call(`/${id}/result`, { status: "COMPLETED", result: { a: 1 } });
    expect(done.body).toMatchObject({ taskId: id, status: "COMPLETED", result: { a: 1 } });
    expect((await call(`/${id}/result`, { status: "COMPLETED" })).status).toBe(200);
    const results = [
      { taskId: id, status: "FAILED", error: "no" },
      { taskId: id, status: "FAILED" },
      { taskId: id, status: "DONE" },
    ];
    const many = await call("/batch/results", { results });
    expect(many.body["results"]).toMatchObject([
      { taskId: id, result: { status: "FAILED", error: "no" } },
      { taskId: id, error: "error required when status=FAILED" },
      { taskId: id, error: "invalid status" },
    ]);
  });

  it.each([
    ["not-found", 404, "task not found"],
    ["not-owner", 403, "not-owner"],
    ["not-in-progress", 409, "not-in-progress"],
  ] as const)("that is none is refused: %s", async (found, status, error) => {
    desk.found = found;
    for (const [act, json] of [
      ["heartbeat", {}],
      ["abandon", {}],
      ["nack", {}],
      ["result", { status: "COMPLETED" }],
    ] as const) {
      const reply = await call(`/${id}/${act}`, json);
      expect([reply.status, reply.body]).toEqual([status, { error }]);
    }
  });
});
