import { expect, it } from "vitest";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { Supervisor } from "../../../src/base/supervisor.ts";
import { queue } from "../../../src/index.ts";
import type { FeedClient } from "../../../src/server/feed/client.ts";
import { Feed } from "../../../src/server/feed/feed.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { openScene } from "../server/http-scene.ts";
import { range } from "../tasks/scene.ts";

const MAILS = queue<number>("mails");
const LIMITS = { clientsMax: 10, tenantClientsMax: 10 };
const FILTER = { tenant: "acme", queues: "all", withCluster: false } as const;
const BULK = 10_000;

/** What a client was told, as far as somebody read it. */
class Told {
  readonly ids: string[] = [];
  readonly events = new Set<string>();
  readonly client: FeedClient;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;

  constructor(client: FeedClient) {
    this.client = client;
    this.#reader = client.stream.getReader();
    onCleanup(() => this.#reader.cancel());
  }

  async readOne(): Promise<boolean> {
    const { done, value } = await this.#reader.read();
    const text = new TextDecoder().decode(value);
    for (const [, id = ""] of text.matchAll(/^data: \{"id":"(\d+)"/gm)) this.ids.push(id);
    for (const [, event = ""] of text.matchAll(/^event: (\w+)$/gm)) this.events.add(event);
    return !done;
  }

  async readAll(): Promise<void> {
    while (await this.readOne()) {}
  }
}

it("a client that reads slowly delays nobody, and is told everything at its own pace", async () => {
  const { mill } = await openScene({ limits: {} });
  const rests: number[] = [];
  const clock: Clock = {
    now: () => systemClock.now(),
    after(ms, wake) {
      rests.push(ms);
      return systemClock.after(ms, wake);
    },
  };
  const feed = new Feed(mill.engine.db, { clock, logger: silentLogger });
  const services = new Supervisor([...feed.services]);
  onCleanup(() => services.stop());
  const open = (): Told =>
    new Told(feed.hub.subscribe({ filter: FILTER, after: undefined }, LIMITS));
  const [slow, quick] = [open(), open()];
  const reading = quick.readAll();
  await eventually(() => expect(slow.client.phase).toBe("live"));
  rests.length = 0;

  const bulk = range(BULK).map((payload) => ({ payload, tenant: "acme" }));
  const adding = mill.enqueueMany(MAILS, bulk);
  // Always taking, and always with much left: a piece for every few that the other one gets.
  for (let read = 0; quick.ids.length < BULK; read += 1) {
    const before = quick.ids.length;
    await slow.readOne();
    await eventually(() => expect(quick.ids.length).toBeGreaterThan(before), { everyMs: 1 });
  }
  expect(slow.client.phase).toBe("behind");
  expect(slow.ids.length).toBeLessThan(BULK / 2);
  expect(rests.filter((ms) => ms > 0 && ms <= 10)).toEqual([]); // The reader waited for nobody.

  const ids = (await adding).map(({ id }) => id);
  expect(quick.ids).toEqual(ids);
  while (slow.ids.length < BULK) await slow.readOne();
  expect(slow.ids).toEqual(ids);
  const [last] = await mill.enqueueMany(MAILS, bulk.slice(0, 1));
  while (slow.ids.length <= BULK) await slow.readOne();
  expect(slow.ids.at(-1)).toBe(last?.id);
  for (const { events } of [slow, quick]) expect(events).not.toContain("lagged");
  feed.drain();
  await reading;
});
