import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const FOLDER = fileURLToPath(new URL("broker/", import.meta.url));
const GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath";

/** Maven fetches a hundred megabytes the first time. */
export const RESOLVE_MS_MAX = 600_000;

/** Why no broker can be started here, or undefined. */
export async function missingJava(): Promise<string | undefined> {
  for (const [program, flag] of [
    ["java", "-version"],
    ["mvn", "-version"],
  ] as const) {
    try {
      await run(program, [flag]);
    } catch {
      return `${program} is not installed`;
    }
  }
  return undefined;
}

/** The archives of the broker that broker/pom.xml names, as java wants them. */
export async function brokerClasspath(): Promise<string> {
  const pom = readFileSync(join(FOLDER, "pom.xml"));
  const name = `tidemill-kafka-${createHash("sha256").update(pom).digest("hex").slice(0, 16)}`;
  const file = join(tmpdir(), `${name}.classpath`);
  const known = existsSync(file) ? readFileSync(file, "utf8") : "";
  if (known !== "" && known.split(delimiter).every((path) => existsSync(path))) return known;
  mkdirSync(tmpdir(), { recursive: true });
  const made = `${file}.${process.pid}`;
  await run("mvn", ["-B", "-q", GOAL, `-Dmdep.outputFile=${made}`], { cwd: FOLDER });
  renameSync(made, file); // Other test files may be doing the same.
  return readFileSync(file, "utf8");
}
