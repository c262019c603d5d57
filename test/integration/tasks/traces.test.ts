import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, expect, it } from "vitest";
import { RestClient } from "../../../src/client/index.ts";
import { completed, queue } from "../../../src/index.ts";
import { testDatabase } from "../../support/database.ts";
import { FAST } from "../../support/options.ts";
import { PRODUCER, producerOf, scene, workerOf } from "../client/scene.ts";

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const STATE = "congo=t61rcWkgMzE";
const GLOBAL = Symbol.for("opentelemetry.js.api.1");

type Headers = Record<string, string>;
interface Setter {
  set(carrier: Headers, name: string, value: string): void;
}
interface Getter {
  get(carrier: Headers, name: string): string | undefined;
}

/**
 * What an SDK hands to @opentelemetry/api, as small as it can be: a trace is its two headers. The
 * API keeps it under a global symbol, by these names, and so does this.
 */
const storage = new AsyncLocalStorage<Headers>();
const context = {
  active: (): Headers => storage.getStore() ?? {},
  with: <T>(trace: Headers, work: () => T): T => storage.run(trace, work),
};
const propagation = {
  inject(trace: Headers, carrier: Headers, setter: Setter): void {
    for (const [name, value] of Object.entries(trace)) setter.set(carrier, name, value);
  },
  extract(trace: Headers, carrier: Headers, getter: Getter): Headers {
    const names = ["traceparent", "tracestate"];
    const found = names.flatMap((name) => {
      const value = getter.get(carrier, name);
      return value === undefined ? [] : [[name, value] as const];
    });
    return { ...trace, ...Object.fromEntries(found) };
  },
};

afterEach(() => void Reflect.deleteProperty(globalThis, GLOBAL));

it("a handler runs in the trace of whoever enqueued", async () => {
  Reflect.set(globalThis, GLOBAL, { version: "1.9.0", context, propagation });
  const mill = await (await testDatabase()).connect();
  const mails = queue<null, Headers>("mails");
  const seen = mails.handle(async ({ traceParent = "" }) => {
    await new Promise(setImmediate);
    return completed({ ...context.active(), traceParent });
  });
  await using _worker = await mill.startWorker({ ...FAST, handlers: [seen] });
  const trace = { traceparent: PARENT, tracestate: STATE };
  const traced = await context.with(trace, () => mill.enqueue(mails, null));
  expect(await traced.result()).toEqual({ ...trace, traceParent: PARENT });
  // Another one's, given by hand, wins; and who is in none has none.
  const other = PARENT.replace("0af7", "ffff");
  const named = await context.with(trace, () => mill.enqueue(mails, null, { traceParent: other }));
  expect(await named.result()).toEqual({ traceparent: other, traceParent: other });
  const alone = await mill.enqueue(mails, null);
  expect(await alone.result()).toEqual({ traceParent: "" });
});

it("a remote handler runs in the trace of whoever enqueued by the client", async () => {
  Reflect.set(globalThis, GLOBAL, { version: "1.9.0", context, propagation });
  const { producer: url, worker, http } = await scene();
  const mails = queue<null, Headers>("mails");
  const seen = mails.handle(async () => {
    await new Promise(setImmediate);
    return completed(context.active());
  });
  await workerOf({ url: worker, handlers: [seen] });
  const producer = await producerOf({ url });
  const rest = new RestClient({ url: http, token: PRODUCER });
  const trace = { traceparent: PARENT, tracestate: STATE };
  const byStream = await context.with(trace, () => producer.enqueue(mails, null));
  const byHttp = await context.with(trace, () => rest.tasks.create(mails, null));
  const alone = await producer.enqueue(mails, null);
  expect(await rest.tasks.completed(byStream.id)).toEqual(trace);
  expect(await rest.tasks.completed(byHttp.id)).toEqual(trace);
  expect(await rest.tasks.completed(alone.id)).toEqual({});
});

it("another trace makes it no other task under the same key", async () => {
  const mill = await (await testDatabase()).connect();
  await mill.queues.ensure("mails");
  const first = await mill.enqueue("mails", 1, { idempotencyKey: "k", traceParent: PARENT });
  const again = await mill.enqueue("mails", 1, {
    idempotencyKey: "k",
    traceParent: PARENT.replace("0af7", "ffff"),
  });
  expect(again.id).toBe(first.id);
});
