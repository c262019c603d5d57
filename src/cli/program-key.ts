import type { Command } from "commander";
import { duration, list } from "./options.ts";

/** What a person does with the keys by which programs call the server. */
export function addKeyCommands(program: Command): void {
  const key = program.command("key").description("make, list or revoke API keys of the server");
  key
    .command("create")
    .description("make an API key, and print it: it cannot be shown again")
    .requiredOption("--tenant <tenant>", "whose tasks it is for")
    .requiredOption("--scopes <scopes>", "producer, worker, read, admin; several with commas", list)
    .option("--queues <queues>", "only these, with commas (default: all)", list)
    .option("--expires <time>", "after so long, such as 90d or 12h (default: never)", duration)
    .option("--name <name>", "what it is for")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { createKey } = await import("./commands/key.ts");
      await createKey(command.optsWithGlobals());
    });
  key
    .command("list")
    .description("show API keys, never their secrets")
    .option("--tenant <tenant>", "only of this tenant")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listKeys } = await import("./commands/key.ts");
      await listKeys(command.optsWithGlobals());
    });
  key
    .command("revoke")
    .description("refuse an API key from now on, for ever")
    .argument("<id>", "its id, or the key itself")
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { revokeKey } = await import("./commands/key.ts");
      await revokeKey(id, command.optsWithGlobals());
    });
}
