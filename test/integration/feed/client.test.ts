import { expect, it } from "vitest";
import { type FeedEvent, RestClient } from "../../../src/client/index.ts";
import { queue } from "../../../src/index.ts";
import { eventually } from "../../support/eventually.ts";
import { feedScene, READER } from "./scene.ts";

const WORK = queue<number>("work");

it("the client of the feed goes on where it was when its server comes back", async () => {
  const scene = await feedScene();
  const rest = new RestClient({ url: scene.url, token: READER });
  const events: FeedEvent[] = [];
  const stop = new AbortController();
  const reading = (async () => {
    for await (const event of rest.feed({ queue: "work", signal: stop.signal })) events.push(event);
  })();
  const told = (): string[] =>
    events.flatMap((one) => (one.event === "task" ? [`${one.data.id} ${one.data.state}`] : []));
  await eventually(() => expect(events.map(({ event }) => event)).toEqual(["ready"]));
  const { id: first } = await scene.mill.enqueue(WORK, 1);
  await eventually(() => expect(told()).toEqual([`${first} pending`]));
  await scene.server.stop();
  const { id: second } = await scene.mill.enqueue(WORK, 2);
  await feedScene("test", { http: { port: Number(new URL(scene.url).port) } }, scene.database);
  await eventually(() => expect(told()).toEqual([`${first} pending`, `${second} pending`]));
  expect(events.filter(({ event }) => event === "reset")).toEqual([]);
  stop.abort();
  await reading;
});

it("the client of the feed throws what is refused for good", async () => {
  const scene = await feedScene();
  const read = async (token: string, options = {}): Promise<void> => {
    for await (const _ of new RestClient({ url: scene.url, token }).feed(options)) return;
  };
  await expect(read("nobody-0123456789-0123456789")).rejects.toMatchObject({
    code: "TM_UNAUTHENTICATED",
  });
  await expect(read(READER, { after: "what" })).rejects.toMatchObject({ code: "TM_INVALID_INPUT" });
  await expect(read(READER, { states: ["done"] })).rejects.toMatchObject({
    code: "TM_INVALID_INPUT",
  });
  await expect(read(READER, { filter: 1 })).rejects.toThrow(/filter/);
  await read(READER); // Leaving the loop ends it.
});
