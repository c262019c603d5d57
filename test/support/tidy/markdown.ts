import { posix } from "node:path";
import { exists, FILES, placeOf, textOf } from "./repository.ts";

/** Code keeps its place and loses its text: what it shows is not a link. */
function withoutCode(text: string): string {
  const blank = (code: string): string => code.replace(/[^\n]/g, " ");
  return text.replace(/^( *)(```|~~~)[\s\S]*?^\1\2/gm, blank).replace(/`[^`\n]*`/g, blank);
}

function anchorsOf(file: string): Set<string> {
  const seen = new Map<string, number>();
  const text = textOf(file).replace(/^```[\s\S]*?^```/gm, "");
  const named = Array.from(text.matchAll(/<a (?:id|name)="([^"]+)"/g), (match) => match[1] ?? "");
  const headings = Array.from(text.matchAll(/^#{1,6} +(.+?) *#*$/gm), (match) => {
    const slug = slugOf(match[1] ?? "");
    const count = seen.get(slug) ?? 0;
    seen.set(slug, count + 1);
    return count === 0 ? slug : `${slug}-${count}`;
  });
  return new Set([...headings, ...named]);
}

/** As GitHub makes it. */
function slugOf(heading: string): string {
  return heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

const LINK = /\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)/gm;

/** Relative links in Markdown whose file or heading does not exist. */
export function brokenLinks(): string[] {
  return FILES.filter((file) => file.endsWith(".md")).flatMap((file) =>
    Array.from(withoutCode(textOf(file)).matchAll(LINK), (match) => {
      const target = match[1] ?? match[2] ?? "";
      const fault = faultOf(file, target);
      return fault === undefined ? "" : `${placeOf(file, match.index)}: ${target}: ${fault}`;
    }).filter((fault) => fault !== ""),
  );
}

/** Pages of a folder to which its README.md does not lead. */
export function unlistedPages(folder: string): string[] {
  const index = `${folder}/README.md`;
  const links = Array.from(withoutCode(textOf(index)).matchAll(LINK), (match) => match[1] ?? "");
  const listed = new Set(links.map((target) => posix.join(folder, target.split("#")[0] ?? "")));
  const pages = FILES.filter((file) => file.startsWith(`${folder}/`) && file.endsWith(".md"));
  return pages.filter((page) => page !== index && !listed.has(page));
}

function faultOf(file: string, target: string): string | undefined {
  if (/^[a-z][a-z+.-]*:/i.test(target)) return undefined;
  const [path = "", anchor] = target.split("#");
  const to = path === "" ? file : posix.join(posix.dirname(file), decodeURIComponent(path));
  if (path.startsWith("/") || !exists(to)) return "no such file";
  if (anchor === undefined || !to.endsWith(".md")) return undefined;
  return anchorsOf(to).has(anchor) ? undefined : "no such heading";
}
