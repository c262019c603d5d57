import { readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

export const REPOSITORY = fileURLToPath(new URL("../../..", import.meta.url));

/** A fenced block of a page. */
export interface Block {
  readonly page: string;
  /** Line of the fence, from 1. */
  readonly line: number;
  /** The nearest heading above it. */
  readonly heading: string;
  readonly code: string;
}

export function readPage(page: string): string {
  return readFileSync(`${REPOSITORY}${page}`, "utf8");
}

export function blocksOf(page: string, language: string): Block[] {
  const blocks: Block[] = [];
  let heading = "";
  let open: { language: string; line: number; code: string[] } | undefined;
  for (const [index, text] of readPage(page).split("\n").entries()) {
    const fence = /^```(\w*)/.exec(text);
    if (fence !== null && open === undefined) {
      open = { language: fence[1] ?? "", line: index + 1, code: [] };
    } else if (fence !== null && open !== undefined) {
      const { line, code } = open;
      if (open.language === language) blocks.push({ page, line, heading, code: code.join("\n") });
      open = undefined;
    } else if (open !== undefined) {
      open.code.push(text);
    } else {
      heading = /^#+ (.*)/.exec(text)?.[1] ?? heading;
    }
  }
  return blocks;
}

/** Every page that users read. */
export async function allPages(): Promise<string[]> {
  const pages = ["README.md"];
  for (const folder of ["docs", "examples"]) {
    const entries = await readdir(`${REPOSITORY}${folder}`, { recursive: true });
    pages.push(
      ...entries.filter((file) => file.endsWith(".md")).map((file) => `${folder}/${file}`),
    );
  }
  return pages.sort();
}
