import { readFile } from "node:fs/promises";
import { messageOf } from "../base/errors.ts";
import { UsageError } from "./errors.ts";
import { shown } from "./text.ts";

/** JSON from the command line, from a file after `@`, or from standard input for `-`. */
export async function readPayload(given: string): Promise<unknown> {
  const { text, from } = await readGiven(given);
  try {
    return JSON.parse(text);
  } catch (error) {
    const hint = from === "the payload" ? `; quote it for the shell, such as '{"to":"ada"}'` : "";
    throw new UsageError(`${from} is not JSON: ${shown(messageOf(error))}${hint}`);
  }
}

/** What a file holds, or standard input for `-`, without the end of its line: a secret. */
export async function readLine(file: string): Promise<string> {
  const text = file === "-" ? await readStandardInput() : await readText(file, "the secret");
  return text.replace(/\r?\n$/, "");
}

async function readGiven(given: string): Promise<{ text: string; from: string }> {
  if (given === "-") return { text: await readStandardInput(), from: "standard input" };
  if (!given.startsWith("@")) return { text: given, from: "the payload" };
  const path = given.slice(1);
  return { text: await readText(path, "the payload"), from: path };
}

async function readStandardInput(): Promise<string> {
  process.stdin.setEncoding("utf8");
  let text = "";
  for await (const part of process.stdin) text += String(part);
  return text;
}

async function readText(path: string, what: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new UsageError(`${what} cannot be read: ${messageOf(error)}`);
  }
}
