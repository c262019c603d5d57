import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { expect, it } from "vitest";
import { Proxy } from "./proxy.ts";

it("keeps the order of what was sent when a delay begins, changes and ends", async () => {
  let said = "";
  const target = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (data) => {
      said += data.toString();
      if (said.endsWith(".")) target.emit("said");
    });
  }).listen(0, "127.0.0.1");
  await once(target, "listening");
  const { port } = target.address() as AddressInfo;
  await using proxy = await Proxy.open(`tcp://127.0.0.1:${port}`);
  const client = connect(Number(new URL(proxy.url).port), "127.0.0.1");
  client.on("error", () => {});
  await once(client, "connect");
  const heard = once(target, "said");
  const say = async (word: string): Promise<void> => {
    client.write(word);
    // Carried on before the next one is sent: they must not be one piece.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  };
  await say("a");
  proxy.delay(150);
  for (const word of ["b", "c"]) await say(word);
  proxy.delay(50);
  await say("d");
  proxy.mend();
  for (const word of ["e", "."]) await say(word);
  await heard;
  expect(said).toBe("abcde.");
  client.destroy();
  target.close();
});
