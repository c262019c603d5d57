import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { completed, consumer, failed, queue, type Tidemill } from "../../src/index.ts";
import { TidemillServer } from "../../src/server/index.ts";
import { SERVER } from "../integration/feed/scene.ts";
import { BRISK } from "../integration/tasks/scene.ts";
import { onCleanup, testDatabase } from "../support/database.ts";
import { ROOT } from "../support/tidy/repository.ts";

export const CHROMIUM = "/usr/bin/chromium";
export const hasChromium = (): boolean => existsSync(CHROMIUM);

const run = promisify(execFile);

/** Built into a folder of its own: other tests serve what lies in dist meanwhile. */
export async function buildDashboard(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "tidemill-dashboard-"));
  onCleanup(() => rm(folder, { recursive: true, force: true }), "file");
  const vite = join(createRequire(import.meta.url).resolve("vite/package.json"), "../bin/vite.js");
  const args = [vite, "build", "dashboard", "--outDir", folder, "--logLevel", "error"];
  const env = { ...process.env, NODE_ENV: "production" };
  await run(process.execPath, args, { cwd: ROOT, env });
  return folder;
}

export interface Shop {
  readonly url: string;
  readonly mill: Tidemill;
  /** Breaks every connection between browsers and the server. */
  readonly cut: () => void;
  /** How many streams of the feed the server has open. */
  readonly streams: () => Promise<number>;
}

/** Whether payments go through. */
export const bank = { isOpen: false };

/** A server, and a worker with something of everything. */
export async function openShop(dashboard: string): Promise<Shop> {
  const database = await testDatabase({ until: "file" });
  const mill = await database.connect();
  const server = new TidemillServer(mill, { ...SERVER, dashboard, metrics: { port: 0 } });
  await server.start();
  onCleanup(() => server.stop(), "file");
  const line = await lineTo(server.address("http").port);
  const worker = await mill.startWorker({
    ...BRISK,
    maxConsecutiveFailures: 1,
    consumers: [
      consumer("order_view", { handle: () => {} }),
      consumer("invoices", {
        handle: ({ type }) => {
          if (type === "OrderLost") throw new Error("order 4711 has no customer");
        },
      }),
    ],
    handlers: [
      queue("orders").handle(() => completed()),
      queue("mails").handle(() => completed({ sent: true })),
      queue("payments", { maxAttempts: 1 }).handle(() => {
        if (bank.isOpen) return completed({ paid: true });
        return failed("the bank does not answer");
      }),
    ],
  });
  onCleanup(() => worker.stop(), "file");
  await mill.queues.ensure("letters");
  return {
    url: `http://127.0.0.1:${line.port}`,
    mill,
    cut: line.cut,
    async streams() {
      const page = await fetch(`http://127.0.0.1:${server.address("metrics").port}/metrics`);
      return Number(/^tidemill_feed_clients (\d+)$/m.exec(await page.text())?.[1]);
    },
  };
}

/** A way to the server that can be cut. */
async function lineTo(port: number): Promise<{ readonly port: number; readonly cut: () => void }> {
  const sockets = new Set<Socket>();
  const line = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on("error", () => {}); // It was cut.
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  line.listen(0, "127.0.0.1");
  await once(line, "listening");
  onCleanup(async () => {
    cut();
    line.close();
    await once(line, "close");
  }, "file");
  return { port: (line.address() as AddressInfo).port, cut };
}

/** One browser for all; every test has a context, which is another person. */
export async function openBrowser(): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  onCleanup(() => browser.close(), "file");
  return browser;
}

/** What a page did that it must not do. */
export interface Watch {
  readonly faults: string[];
}

/** Notes errors, refusals by the policy, and requests that leave the server. */
export async function watch(context: BrowserContext, url: string): Promise<Watch> {
  const faults: string[] = [];
  await context.addInitScript({
    content: `document.addEventListener("securitypolicyviolation", (event) =>
      console.error("policy: " + event.violatedDirective + " " + event.blockedURI));`,
  });
  context.on("request", (request) => {
    if (!request.url().startsWith(url)) faults.push(`request to ${request.url()}`);
    if (/token-of/.test(request.url())) faults.push(`a token in ${request.url()}`);
  });
  context.on("console", (message) => {
    const isRefusal = /status of 401/.test(message.text()); // Of who has not signed in yet.
    if (message.type() === "error" && !isRefusal) faults.push(message.text());
  });
  context.on("weberror", (failure) => void faults.push(String(failure.error())));
  return { faults };
}

export async function signIn(page: Page, url: string, token: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await live(page);
}

/** Until the page follows the feed, and has what it shows. */
export async function live(page: Page): Promise<void> {
  await page.getByRole("banner").getByText("Live", { exact: true }).waitFor();
  await page.getByText("Loading…").waitFor({ state: "detached" });
}

/** Where pictures for the documents go, when somebody asks for new ones. */
const PICTURES = process.env["TIDEMILL_PICTURES"];

export async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

/** Something to be seen in pictures: some seconds of mails, more and fewer. */
export async function traffic({ mill }: Shop, page: Page): Promise<void> {
  if (PICTURES === undefined) return;
  for (let turn = 0; turn < 80; turn += 1) {
    const count = 20 + Math.round(15 * Math.sin(turn / 9));
    const tasks = Array.from({ length: count }, (_, payload) => ({ payload }));
    await mill.enqueueMany("mails", tasks);
    await page.waitForTimeout(250);
  }
}
