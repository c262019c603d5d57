import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { HttpCaller } from "./http-call.ts";
import { readFeed } from "./rest-feed.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const message = (id: number): Uint8Array =>
  new TextEncoder().encode(`id: ${id}\nevent: ready\ndata: {}\n\n`);

/** Answers each call with a stream that is never closed. */
function silentServer() {
  const opened: ReadableStreamDefaultController<Uint8Array>[] = [];
  const fetch = (_: unknown, init?: RequestInit): Promise<Response> => {
    const stream = new ReadableStream<Uint8Array>({
      start(controller) {
        opened.push(controller);
        init?.signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
      },
    });
    return Promise.resolve(new Response(stream));
  };
  return { opened, http: new HttpCaller({ url: "http://tidemill.test", token: "t", fetch }) };
}

it("a silent server is left, and time that the caller takes is not silence", async () => {
  const { opened, http } = silentServer();
  const events = readFeed(http);
  let next = events.next();
  await vi.advanceTimersByTimeAsync(1_000);
  opened[0]?.enqueue(message(1));
  expect((await next).value?.id).toBe("1");
  await vi.advanceTimersByTimeAsync(120_000); // The caller works.
  next = events.next();
  await vi.advanceTimersByTimeAsync(40_000);
  opened[0]?.enqueue(message(2));
  expect((await next).value?.id).toBe("2");
  expect(opened).toHaveLength(1);
  next = events.next();
  await vi.advanceTimersByTimeAsync(50_000); // The server says nothing.
  expect(opened).toHaveLength(2);
  opened[1]?.enqueue(message(3));
  expect((await next).value?.id).toBe("3");
  await events.return();
});
