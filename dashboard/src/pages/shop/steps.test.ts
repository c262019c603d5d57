import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { STEPS } from "./steps.tsx";

it("shows every step of the tutorial, by its title and in its order", () => {
  const page = new URL("../../../../docs/tutorial/README.md", import.meta.url);
  const titles = Array.from(
    readFileSync(page, "utf8").matchAll(/^\d+\. \[(.+)\]\(.+\)$/gm),
    ([, title = ""]) => title,
  );
  const [last, ...steps] = titles.toReversed();
  expect(last).toBe("What next"); // Behind it: there is nothing to see.
  expect(STEPS.map(({ title }) => title)).toEqual(steps.toReversed());
});
