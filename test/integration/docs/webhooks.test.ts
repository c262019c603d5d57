import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, it } from "vitest";
import { onCleanup } from "../../support/database.ts";
import { deliveryIn, endTask, newScene, startSender } from "../delivery/webhook-scene.ts";
import { blocksOf, REPOSITORY } from "./blocks.ts";

it("the receiver of the page takes what is signed, once, and refuses the rest", async () => {
  const [block] = blocksOf("docs/how-to/receive-webhooks.md", "ts").filter(({ code }) =>
    code.includes("createServer"),
  );
  const folder = await mkdtemp(join(tmpdir(), "tidemill-receiver-"));
  onCleanup(() => rm(folder, { recursive: true }));
  const file = join(folder, "receiver.mts");
  await writeFile(file, block?.code ?? "");
  const scene = await newScene();
  const [secret] = await scene.mill.webhooks.secrets("default", "default");
  const program = spawn(process.execPath, ["--import", "tsx", file], {
    cwd: REPOSITORY,
    env: { ...process.env, WEBHOOK_SECRET: secret?.reveal() ?? "", PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(program, "close");
  onCleanup(async () => {
    program.kill();
    await ended;
  });
  const lines = createInterface({ input: program.stdout })[Symbol.asyncIterator]();
  const { value: address } = await lines.next();
  const port = Number(/port: (\d+)/.exec(String(address))?.[1]);
  const url = `http://hooks.test:${port}/`;

  startSender(scene, [port]);
  const taskId = await endTask(scene, url);
  const { id } = await deliveryIn(scene, taskId, "delivered");
  expect((await lines.next()).value).toBe(`task.cancelled ${taskId}`);
  // Sent again it is taken and not acted upon: the next line is of the next message.
  expect(await scene.mill.webhooks.redeliver("default", { ids: [id] })).toBe(1);
  await deliveryIn(scene, taskId, "delivered");
  const next = await endTask(scene, url);
  await deliveryIn(scene, next, "delivered");
  expect((await lines.next()).value).toBe(`task.cancelled ${next}`);

  const forged = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: "{}" });
  expect(forged.status).toBe(401);
});
