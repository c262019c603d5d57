import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const REPOSITORY = fileURLToPath(new URL("..", import.meta.url));

/** Runs a TypeScript program as a user would and returns the lines it printed. */
export async function runProgram(file: URL | string, databaseUrl: string): Promise<string[]> {
  const path = typeof file === "string" ? file : fileURLToPath(file);
  const child = spawn(process.execPath, ["--import", "tsx", path], {
    cwd: REPOSITORY,
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 55_000,
  });
  let printed = "";
  let complaints = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaints += text;
  });
  const [code, signal] = (await once(child, "close")) as [number | null, string | null];
  if (code !== 0) {
    throw new Error(`${path} ended with ${code ?? signal}:\n${printed}\n${complaints}`);
  }
  return printed.trimEnd().split("\n");
}
