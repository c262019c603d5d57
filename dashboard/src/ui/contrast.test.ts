import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");
const STYLE = read("../style.css");

/** Colours by name, as the first rule of a selector has them. */
function colorsOf(selector: string): ReadonlyMap<string, string> {
  const [, rule = ""] = STYLE.split(`${selector} {`);
  const body = rule.slice(0, rule.indexOf("}"));
  const found = body.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g);
  return new Map(Array.from(found, ([, name = "", color = ""]) => [name, color]));
}

function luminanceOf(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrastOf(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminanceOf(one), luminanceOf(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

describe.each([
  ["light", ":root"],
  ["dark", ':root[data-theme="dark"]'],
])("in %s", (_, selector) => {
  const colors = colorsOf(selector);
  const of = (name: string): string => colors.get(name) ?? "";

  // WCAG 1.4.11, which axe does not look at.
  it.each(["canvas", "panel"])("borders of fields are seen on the %s", (ground) => {
    expect(contrastOf(of("edge"), of(ground))).toBeGreaterThanOrEqual(3);
  });
});

it("fields have that border, and nothing is smaller than twelve pixels", () => {
  expect(read("./field.tsx")).toContain("rounded-md border border-edge bg-panel");
  const base = Number(/font-size: (\d+)px;/.exec(STYLE)?.[1]);
  const small = Number(/--text-xs: ([\d.]+)rem;/.exec(STYLE)?.[1]);
  expect(base * small).toBeGreaterThanOrEqual(12);
});
