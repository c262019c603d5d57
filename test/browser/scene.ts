import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import type pg from "pg";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
} from "playwright-core";
import { expect } from "vitest";
import {
  completed,
  consumer,
  failed,
  nack,
  queue,
  route,
  type Tidemill,
  type WorkerOptions,
} from "../../src/index.ts";
import { TidemillServer } from "../../src/server/index.ts";
import {
  orderView,
  project,
  projectWrongly,
  TABLES,
} from "../integration/consumers/rebuild-scene.ts";
import { SERVER } from "../integration/feed/scene.ts";
import { BRISK } from "../integration/tasks/scene.ts";
import { onCleanup, testDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";

export const CHROMIUM = "/usr/bin/chromium";
export const hasChromium = (): boolean => existsSync(CHROMIUM);

export interface Shop {
  readonly url: string;
  readonly mill: Tidemill;
  /** Breaks every connection between browsers and the server. */
  readonly cut: () => void;
  /** The server cannot be reached until what it returns is called. */
  readonly leave: () => () => void;
  /** How many streams of the feed the server has open. */
  readonly streams: () => Promise<number>;
  /** Another worker like the first. */
  readonly hire: () => Promise<void>;
  /** A session of the database, for transactions that stay open. */
  readonly session: () => Promise<pg.Client>;
}

/** Whether payments go through. */
export const bank = { isOpen: false };
/** Whether torn letters can be read, which is tried once it is open. */
export const post = { canRead: false, opened: Promise.resolve() };
/** Until when long mails are read. */
export const mailbox = { read: Promise.resolve() };
/** Whether the order of an event is told as it should be. */
export const clerk = { isRight: false };
/** Whether customers of lost orders were found. */
export const books = { hasCustomer: false };

/** Of whoever pays. */
export const TRACE = { id: "4bf92f3577b34da6a3ce929d0e0e4736", span: "00f067aa0ba902b7" };

const paidOrder = route("pay", {
  eventTypes: ["OrderPaid"],
  queue: queue("receipts"),
  task: ({ data, stream }) => ({
    payload: data,
    partitionKey: stream.id,
    traceParent: `00-${TRACE.id}-${TRACE.span}-01`,
  }),
});

/** With a stack that is the same on every machine. */
function noCustomer(): Error {
  const error = new Error("order 4711 has no customer");
  error.stack = `Error: ${error.message}\n    at makeInvoice (invoices.ts:12:9)`;
  return error;
}

/** What workers do: something of everything. */
const program = (): WorkerOptions => ({
  ...BRISK,
  maxConsecutiveFailures: 1,
  consumers: [
    consumer("order_view", { handle: () => {} }),
    consumer("invoices", {
      handle: ({ type }) => {
        if (type !== "OrderLost" || books.hasCustomer) return;
        throw noCustomer();
      },
    }),
    consumer("letters_out", {
      onFailure: "park",
      handle: async ({ type, streamId }) => {
        if (type !== "LetterTorn") return;
        await post.opened;
        if (post.canRead) return;
        throw new Error(`letter ${streamId} is torn <script>`);
      },
    }),
    orderView(async (event, context) => {
      if (event.streamType !== "Order") return;
      await (clerk.isRight ? project : projectWrongly)(event, context);
    }),
  ],
  handlers: [
    queue("orders").handle(() => completed()),
    queue("receipts").handle(() => completed()),
    queue("mails").handle(async ({ kind }) => {
      if (kind === "refused") return nack(600, "the mailbox is full <b>");
      if (kind === "long") await mailbox.read;
      return completed({ sent: true });
    }),
    queue("payments", { maxAttempts: 1 }).handle(({ kind }) => {
      if (bank.isOpen) return completed({ paid: true });
      return failed(kind === "card" ? "the card is void" : "the bank does not answer");
    }),
  ],
});

/** A server, and a worker. */
export async function openShop(dashboard: string): Promise<Shop> {
  const database = await testDatabase({ until: "file" });
  await database.pool.query(TABLES);
  const mill = await database.connect({ routes: [paidOrder] });
  const server = new TidemillServer(mill, { ...SERVER, dashboard, metrics: { port: 0 } });
  await server.start();
  onCleanup(() => server.stop(), "file");
  const line = await lineTo(server.address("http").port);
  const hire = async (): Promise<void> => {
    const worker = await mill.startWorker(program());
    onCleanup(() => worker.stop(), "file");
  };
  await hire();
  await mill.queues.ensure("letters");
  return {
    url: `http://127.0.0.1:${line.port}`,
    mill,
    cut: line.cut,
    leave: line.leave,
    hire,
    session: () => database.session(),
    async streams() {
      const page = await fetch(`http://127.0.0.1:${server.address("metrics").port}/metrics`);
      return Number(/^tidemill_feed_clients (\d+)$/m.exec(await page.text())?.[1]);
    },
  };
}

/** A way to the server that can be cut. */
async function lineTo(port: number): Promise<Pick<Shop, "cut" | "leave"> & { port: number }> {
  let isAway = false;
  const sockets = new Set<Socket>();
  const line = createServer((near) => {
    if (isAway) {
      near.destroy();
      return;
    }
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
  const leave = (): (() => void) => {
    isAway = true;
    cut();
    return () => {
      isAway = false;
    };
  };
  line.listen(0, "127.0.0.1");
  await once(line, "listening");
  onCleanup(async () => {
    cut();
    line.close();
    await once(line, "close");
  }, "file");
  return { port: (line.address() as AddressInfo).port, cut, leave };
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

export interface Visit {
  readonly page: Page;
  readonly seen: Watch;
  /** Another tab of the same browser. */
  readonly tab: () => Promise<Page>;
}

/** Colours change at once: half of a change would be what somebody judges. */
export const CALM: BrowserContextOptions = {
  viewport: { width: 1280, height: 900 },
  reducedMotion: "reduce",
};

/** What every test has. */
export interface Place {
  readonly shop: Shop;
  readonly browser: Browser;
}

/** Somebody with a browser of their own, signed in unless there is no token. */
export async function openVisit(
  { shop, browser }: Place,
  token?: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  const context = await browser.newContext({ ...CALM, ...options });
  onCleanup(() => context.close());
  context.setDefaultTimeout(30_000); // Of a machine that does more.
  const seen = await watch(context, shop.url);
  const page = await context.newPage();
  if (token !== undefined) await signIn(page, shop.url, token);
  return { page, seen, tab: () => context.newPage() };
}

export const menu = (page: Page, name: string): Promise<void> =>
  page.getByRole("navigation").getByRole("link", { name, exact: true }).click();

/** Of a list of tasks. */
export const rowOf = (page: Page, id: string): Locator =>
  page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) });

/** Opens a dialog, does something in it, and confirms; it is gone when it was done. */
export async function confirm(
  page: Page,
  verb: string,
  fill?: (dialog: Locator) => Promise<void>,
): Promise<void> {
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await fill?.(dialog);
  await dialog.getByRole("button", { name: verb, exact: true }).click();
  await page.locator("dialog").waitFor({ state: "detached" });
}

/** As a tab that somebody has signed in before; the test of signing in types the token. */
export async function signIn(page: Page, url: string, token: string): Promise<void> {
  const content = `sessionStorage.setItem("tidemill-token", ${JSON.stringify(token)});`;
  await page.addInitScript({ content });
  await page.goto(url);
  await live(page);
}

/** Until the page follows the feed, and has what it shows. */
export async function live(page: Page): Promise<void> {
  await page.getByRole("banner").getByText("Live", { exact: true }).waitFor();
  await page.getByText("Loading…").first().waitFor({ state: "detached" });
}

/** A task that nobody takes. */
export async function letter({ mill }: Shop): Promise<string> {
  const { id } = await mill.enqueue("letters", { to: "Eve" });
  onCleanup(() => mill.tasks.cancel(id).catch(() => {})); // The test may have done so.
  return id;
}

/** Payments of one kind that have died. */
export async function die({ mill }: Shop, count: number, kind: string): Promise<string[]> {
  bank.isOpen = false;
  const payments = Array.from({ length: count }, (_, amount) => ({
    payload: { order: 4711, amount },
    kind,
  }));
  const tasks = await mill.enqueueMany("payments", payments);
  const ids = tasks.map(({ id }) => id);
  await eventually(async () => {
    expect((await mill.deadLetters.count({ kind, ids }, count)).count).toBe(count);
  });
  return ids;
}

/** Where pictures for the documents go, when somebody asks for new ones. */
const PICTURES = process.env["TIDEMILL_PICTURES"];

/** Of the whole page. test/browser/pictures.test.ts keeps the names and docs/images in step. */
export async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.mouse.move(0, 0); // Nothing is pointed at.
  const path = join(PICTURES, `${name}.png`);
  await page.screenshot({ path, fullPage: true, animations: "disabled" });
}

const TRAFFIC_TURNS = PICTURES === undefined ? 4 : 360;
/** Of these, orders pile up in the last. */
const RUSH_TURNS = 40;

/** Something to be seen in pictures: mails, more and fewer, orders of some keys, and failures. */
export async function traffic({ mill }: Shop, page: Page): Promise<void> {
  for (let turn = 0; turn < TRAFFIC_TURNS; turn += 1) {
    if (turn === TRAFFIC_TURNS - RUSH_TURNS) {
      await mill.queues.setLimits("orders", { rate: { count: 1, seconds: 1 } });
    }
    const count = 20 + Math.round(15 * Math.sin(turn / 9));
    await mill.enqueueMany(
      "mails",
      Array.from({ length: count }, (_, payload) => ({ payload })),
    );
    for (const step of [1, 2]) {
      // The lower the number, the more orders a customer has.
      const partitionKey = `customer-${Math.floor(((turn * 17 + step * 29) % 97) ** 2 / 40)}`;
      await mill.enqueue("orders", { turn }, { partitionKey, priority: step === 1 ? 5 : 8 });
    }
    if (turn % 16 === 0) await mill.enqueue("payments", { turn }, { kind: "card" });
    await page.waitForTimeout(250);
  }
}
