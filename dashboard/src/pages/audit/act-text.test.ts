import { expect, it } from "vitest";
import { describeAct, describeStatus } from "./act-text.ts";

const said = (call: string, target: Record<string, unknown>): string =>
  describeAct({ call, target });

it("says what somebody did", () => {
  expect(said("POST /v1/queues/:name/pause", { name: "mails" })).toBe("paused queue mails");
  const limits = { name: "mails", concurrency: 5, rate: { count: 50, seconds: 10 }, keyRate: null };
  expect(said("PUT /v1/queues/:name/limits", limits)).toBe(
    "limited queue mails (concurrency 5, keyRate none, rate 50 per 10 s)",
  );
  expect(said("POST /v1/dead-letters/redrive", { ids: 12 })).toBe(
    "redrove dead letters: 12 chosen",
  );
  expect(said("POST /v1/dead-letters/purge", { queue: "mails", limit: 500 })).toBe(
    "purged dead letters: queue mails",
  );
});

it("tells a call that it has no words for as it is", () => {
  expect(said("DELETE /v1/webhooks/:id", { id: "main" })).toBe("DELETE /v1/webhooks/main");
});

it("tells what was refused, and what nobody knows the end of", () => {
  expect(describeStatus(204).text).toBe("done");
  expect(describeStatus(409).text).toBe("refused, 409");
  expect(describeStatus(undefined).text).toBe("unknown");
});
