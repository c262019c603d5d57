import { type Command, Option } from "commander";
import { header, statuses } from "./options.ts";

const METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"];

/** What is called, and how: of a queue of kind http, or of one of its tasks. */
export function addCallOptions(command: Command): Command {
  return command
    .option("--target-url <url>", "what a task of an http queue calls")
    .addOption(new Option("--method <method>", "how it is called (default: POST)").choices(METHODS))
    .option("--header <name: text>", "sent with the call; as often as need be", header)
    .option("--expected-status <statuses>", "answers that complete it (default: any 2xx)", statuses)
    .option("--endpoint <id>", "webhook endpoint whose secret signs the call (default: default)");
}
