import type { Logger } from "../src/index.ts";

/** What a process says of itself, for people who look into what a rule found. */
export function logTo(output: NodeJS.WritableStream): Logger {
  const say = (level: string) => (fields: object, message: string) => {
    output.write(`${JSON.stringify({ t: Date.now(), level, message, ...fields })}\n`);
  };
  return { debug: () => {}, info: say("info"), warn: say("warn"), error: say("error") };
}
