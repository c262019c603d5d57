import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** The one rule that came with WCAG 2.2 is off unless it is asked for. */
const ALL = { rules: { "target-size": { enabled: true } } };
/** Those that another width may break, which take a tenth of the time. */
export const LAYOUT = { runOnly: ["target-size", "scrollable-region-focusable"] };

interface AxeResult {
  readonly violations: readonly { id: string; nodes: readonly { target: unknown }[] }[];
}

/** What axe finds wrong with a page as it is now: rules, and where they are broken. */
export async function axe(page: Page, options: object = ALL): Promise<string[]> {
  const isThere = await page.evaluate<boolean>("'axe' in window");
  if (!isThere) await page.evaluate(await readFile(AXE, "utf8"));
  const { violations } = await page.evaluate<AxeResult>(`axe.run(${JSON.stringify(options)})`);
  return violations.map(({ id, nodes }) => `${id}: ${JSON.stringify(nodes.map((n) => n.target))}`);
}
