import type { Command } from "commander";
import { amount, rate } from "./options.ts";

/** What a person does with tenants of the server. */
export function addTenantCommands(program: Command): void {
  const tenant = program.command("tenant").description("show and change quotas of tenants");
  tenant
    .command("list")
    .description("show the tenants that have a quota")
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listTenants } = await import("./commands/tenant.ts");
      await listTenants(command.optsWithGlobals());
    });
  tenant
    .command("quota")
    .description("show the quota of a tenant and its use, or change what is given")
    .argument("<tenant>")
    .option("--pending-tasks <n>", "tasks that may wait or run at once, or none", amount)
    .option("--pending-bytes <n>", "bytes of their payloads, or none", amount)
    .option("--rate <count/seconds>", "creates per period, or none", rate)
    .option("--json", "print one JSON document")
    .action(async (name: string, _: object, command: Command) => {
      const { showQuota } = await import("./commands/tenant.ts");
      await showQuota(name, command.optsWithGlobals());
    });
}
