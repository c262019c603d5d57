import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { onCleanup } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { program } from "../support/programs.ts";
import type { Scene } from "./scene.ts";

export interface KafkaProcess {
  kill(signal: "SIGKILL" | "SIGTERM"): Promise<number | null>;
  /** Stands still as if its machine did, until it is woken or killed. */
  freeze(): void;
  wake(): void;
  readonly log: () => string;
  readonly exitCode: () => number | null;
}

const BEGUN = { ingest: '"ingesting"', publish: '"publishing"' };

/** `tidemill ingest kafka` or `tidemill publish kafka`, as an operator runs them. */
export async function startProcess(
  here: Scene,
  part: "ingest" | "publish",
  options: object,
  flags: readonly string[] = [],
): Promise<KafkaProcess> {
  const folder = mkdtempSync(join(tmpdir(), "tidemill-kafka-"));
  onCleanup(async () => rmSync(folder, { recursive: true }));
  const config = join(folder, "config.json");
  const kafka = { brokers: [here.broker.address] };
  writeFileSync(config, JSON.stringify({ kafka, [part]: options }));
  const words = [part, "kafka", "--config", config, "--database-url", here.database.url];
  const child = spawn(process.execPath, [program("src/cli/main.ts"), ...words, ...flags]);
  let log = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      log += text;
    });
  }
  const exited = once(child, "close") as Promise<[number | null]>;
  const kill = async (signal: "SIGKILL" | "SIGTERM"): Promise<number | null> => {
    child.kill(signal);
    return (await exited)[0];
  };
  onCleanup(() => kill("SIGKILL"));
  await eventually(() => expect(log).toContain(BEGUN[part]));
  const freeze = (): void => void child.kill("SIGSTOP");
  const wake = (): void => void child.kill("SIGCONT");
  return { kill, freeze, wake, log: () => log, exitCode: () => child.exitCode };
}
