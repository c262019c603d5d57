import { describe, expect, it } from "vitest";
import { connectProducer, connectWorker, queue } from "../../../src/client/index.ts";

/** Nobody is there: what is refused is refused before anything is sent. */
const COMMON = { url: "127.0.0.1:1", token: "token", connectSeconds: 0.1 };
const mails = queue("mails");
const handler = mails.handle(() => {});

describe("a producer", () => {
  it.each([
    ["an unknown option", { batchTask: 1 }, /batchTasks/],
    ["no server", { url: [] }, /1 to 64 servers/],
    ["no token", { token: "" }, /token/],
    ["a batch of none", { batchTasks: 0 }, /batchTasks/],
    ["a window of half a task", { windowTasks: 0.5 }, /windowTasks/],
    ["a deadline of nothing", { withinSeconds: 0 }, /withinSeconds/],
    ["a word for a choice", { automaticKeys: "yes" }, /automaticKeys/],
    ["a name for a certificate", { tls: { ca: "ca.pem" } }, /PEM/],
    ["half a pair", { tls: { cert: "-----BEGIN X" } }, /belong together/],
  ])("with %s is refused", async (_what, options, message) => {
    await expect(connectProducer({ ...COMMON, ...options } as never)).rejects.toThrow(message);
  });
});

describe("a worker", () => {
  it.each([
    ["an unknown one", { handler: [] }, /handlers/],
    ["no handlers", { handlers: [] }, /handlers/],
    ["two handlers of a queue", { handlers: [handler, handler] }, /two handlers/],
    ["something that is no handler", { handlers: [mails] }, /queue\.handle/],
    ["a queue without a handler", { queues: ["other"] }, /no handler of queue "other"/],
    ["too much at once", { concurrency: 200, batchSize: 64 }, /12800, over the 10000/],
    ["a short lease", { leaseSeconds: 0.5 }, /leaseSeconds/],
    ["an empty name", { workerId: " " }, /workerId/],
    ["no server", { url: "" }, /url/],
  ])("with %s is refused", async (_what, options, message) => {
    const given = { ...COMMON, handlers: [handler], ...options } as never;
    await expect(connectWorker(given)).rejects.toThrow(message);
  });
});
