import { readFileSync } from "node:fs";

const file = new URL("../../package.json", import.meta.url);

/** The version of this package, as workers show it and `tidemill --version` prints it. */
export const VERSION: string = (JSON.parse(readFileSync(file, "utf8")) as { version: string })
  .version;
