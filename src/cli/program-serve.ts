import type { Command } from "commander";
import { SERVE_SETTINGS, type ServeFlags } from "./serve/settings.ts";
import { addSettings, readEnvironment } from "./settings.ts";

/** The server, for programs that have no database. */
export function addServe(program: Command): void {
  const serve = program
    .command("serve")
    .description("serve producers, workers and HTTP clients that have no database");
  addSettings(serve, SERVE_SETTINGS);
  serve.action(async (_: object, command: Command) => {
    readEnvironment(command, SERVE_SETTINGS, process.env);
    const { runServe } = await import("./commands/serve.ts");
    await runServe(command.optsWithGlobals<ServeFlags>());
  });
}
