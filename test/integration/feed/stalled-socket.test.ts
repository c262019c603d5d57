import { once } from "node:events";
import { connect } from "node:net";
import { expect, it } from "vitest";
import { queue } from "../../../src/index.ts";
import { onCleanup } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { range } from "../tasks/scene.ts";
import { feedScene, READER } from "./scene.ts";

const MAILS = queue<number>("mails");
const LETTERS = queue<number>("letters");
/** More than a client has room for, and what the kernel keeps of a connection. */
const TASKS = 100_000;
const BATCH = 10_000;

it("a connection that nobody reads lags, and no other waits for it", async () => {
  const { listen, mill, url } = await feedScene();
  const awake = await listen({ query: "?queue=letters" });
  const stalled = connect(Number(new URL(url).port), "127.0.0.1");
  onCleanup(async () => void stalled.destroy());
  const lines = ["GET /v1/feed HTTP/1.0", "host: localhost", `authorization: Bearer ${READER}`];
  stalled.write(`${lines.join("\r\n")}\r\n\r\n`);
  await once(stalled, "data");
  stalled.pause();
  for (let sent = 0; sent < TASKS; sent += BATCH) {
    await mill.enqueueMany(
      MAILS,
      range(BATCH).map((payload) => ({ payload })),
    );
    const { id } = await mill.enqueue(LETTERS, sent);
    await eventually(() => expect(awake.states(id)).toEqual(["pending"]));
  }
  let [text, told, hasLagged] = ["", 0, false];
  stalled.setEncoding("latin1").on("data", (more: string) => {
    text = (text + more).slice(-100_000);
    told += more.split("event: task").length - 1;
    hasLagged ||= text.includes("event: lagged");
  });
  stalled.resume();
  await eventually(() => expect(hasLagged).toBe(true));
  expect(told).toBeLessThan(TASKS);
  expect(awake.of("lagged")).toEqual([]);
});
