import { existsSync } from "node:fs";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { TOKEN } from "./token.ts";

const CHROMIUM = "/usr/bin/chromium";
/** Tabs are opened in these places, again from the start when there are more. */
const PLACES = ["/", "/queues", "/tasks", "/consumers", "/ring", "/dead-letters", "/schedules"];

/** A browser with the dashboard in so many tabs, each signed in and following the feed. */
export class Tabs implements AsyncDisposable {
  readonly version: string;
  readonly #browser: Browser;
  readonly #context: BrowserContext;
  readonly #pages: Page[] = [];

  private constructor(browser: Browser, context: BrowserContext) {
    this.version = `Chromium ${browser.version()}`;
    this.#browser = browser;
    this.#context = context;
  }

  static async open(base: string, count: number): Promise<Tabs> {
    if (!existsSync(CHROMIUM)) {
      throw new Error(`there is no browser at ${CHROMIUM}; run: apt-get install chromium`);
    }
    const args = ["--no-sandbox", "--disable-dev-shm-usage"];
    const browser = await chromium.launch({ executablePath: CHROMIUM, args });
    const tabs = new Tabs(browser, await browser.newContext());
    try {
      for (let at = 0; at < count; at += 1) {
        await tabs.#add(base + (PLACES[at % PLACES.length] ?? "/"));
      }
      return tabs;
    } catch (error) {
      await browser.close();
      throw error;
    }
  }

  /** Every tab still follows the feed, or this throws. */
  async assertLive(): Promise<void> {
    for (const page of this.#pages) await isLive(page);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }

  async #add(place: string): Promise<void> {
    const page = await this.#context.newPage();
    await page.goto(place);
    await page.getByLabel("Token").fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await isLive(page);
    this.#pages.push(page);
  }
}

const isLive = (page: Page): Promise<void> =>
  page.getByRole("banner").getByText("Live", { exact: true }).waitFor();
