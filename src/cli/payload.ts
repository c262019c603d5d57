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

async function readGiven(given: string): Promise<{ text: string; from: string }> {
  if (given === "-") {
    process.stdin.setEncoding("utf8");
    let text = "";
    for await (const part of process.stdin) text += String(part);
    return { text, from: "standard input" };
  }
  if (!given.startsWith("@")) return { text: given, from: "the payload" };
  const path = given.slice(1);
  try {
    return { text: await readFile(path, "utf8"), from: path };
  } catch (error) {
    throw new UsageError(`the payload cannot be read: ${messageOf(error)}`);
  }
}
