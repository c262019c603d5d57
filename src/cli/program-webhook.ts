import { type Command, Option } from "commander";
import { deliveryId, deliveryIds, overlap, taskId, wholeNumber } from "./options.ts";

const STATES = ["pending", "running", "delivered", "dead"];
const TYPES = ["task.completed", "task.failed", "task.dead", "task.cancelled"];
const TENANT = 'whose endpoints and deliveries (default: "default")';

/** What a person does with webhooks. */
export function addWebhookCommands(program: Command): void {
  const webhook = program
    .command("webhook")
    .description("manage who is told of ended tasks, and what they were told");
  addReading(webhook);
  addPut(webhook);
  addSecrets(webhook);
  addDeliveries(webhook);
  addRedeliver(webhook);
}

function addReading(webhook: Command): void {
  webhook
    .command("list")
    .description("show the endpoints of a tenant, never their secrets")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listEndpoints } = await import("./commands/webhook.ts");
      await listEndpoints(command.optsWithGlobals());
    });
  webhook
    .command("remove")
    .description("forget an endpoint; messages that wait for it will be dead")
    .argument("<id>")
    .option("--tenant <tenant>", TENANT)
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { removeEndpoint } = await import("./commands/webhook.ts");
      await removeEndpoint(id, command.optsWithGlobals());
    });
}

function addPut(webhook: Command): void {
  webhook
    .command("put")
    .description("make an endpoint, and print its secret; or change one")
    .argument("<id>", "a name of yours; default signs for tasks that name a URL")
    .option("--url <url>", "where its messages go")
    .option("--description <text>", "for people")
    .addOption(
      new Option("--format <format>", "of its messages (default: standard)").choices([
        "standard",
        "codeq",
      ]),
    )
    .option("--secret-file <file>", "take over the secret in it; - for standard input")
    .addOption(new Option("--enable", "send to it again").conflicts("disable"))
    .option("--disable", "send nothing to it: its messages will be dead")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { putEndpoint } = await import("./commands/webhook.ts");
      await putEndpoint(id, command.optsWithGlobals());
    });
}

function addSecrets(webhook: Command): void {
  webhook
    .command("secret")
    .description("print the secrets with which an endpoint signs, the newest first")
    .argument("<id>")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { showSecrets } = await import("./commands/webhook.ts");
      await showSecrets(id, command.optsWithGlobals());
    });
  webhook
    .command("rotate")
    .description("give an endpoint a new secret, and print it")
    .argument("<id>")
    .option("--overlap <time>", "the old one signs, too, such as 7d or none (default: 1d)", overlap)
    .option("--secret-file <file>", "use the secret in it; - for standard input")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { rotateSecret } = await import("./commands/webhook.ts");
      await rotateSecret(id, command.optsWithGlobals());
    });
}

function addDeliveries(webhook: Command): void {
  webhook
    .command("deliveries")
    .description("show what was and will be sent, newest first; or one, and its attempts")
    .argument("[id]", "only this one, and its attempts", deliveryId)
    .option("--endpoint <id>", "only to this endpoint")
    .addOption(new Option("--state <state>", "only in this state").choices(STATES))
    .option("--task <id>", "only of this task", taskId)
    .addOption(new Option("--type <type>", "only of this end").choices(TYPES))
    .option("--before <id>", "only older ones: the last id of the page before", deliveryId)
    .option("--limit <n>", "at most so many", wholeNumber(1, 1_000), 50)
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (id: string | undefined, _: object, command: Command) => {
      const { showDeliveries } = await import("./commands/webhook.ts");
      await showDeliveries(id, command.optsWithGlobals());
    });
}

function addRedeliver(webhook: Command): void {
  webhook
    .command("redeliver")
    .description("send messages again, with the same ids and all their attempts")
    .argument("[ids...]", "only these", deliveryIds, [])
    .option("--endpoint <id>", "only to this endpoint")
    .option("--task <id>", "only of this task", taskId)
    .addOption(new Option("--type <type>", "only of this end").choices(TYPES))
    .addOption(
      new Option("--state <state>", "only such (default: dead)").choices(["dead", "delivered"]),
    )
    .option("--all", "every one of that state")
    .option("--tenant <tenant>", TENANT)
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document")
    .action(async (ids: string[], _: object, command: Command) => {
      const { redeliver } = await import("./commands/webhook.ts");
      await redeliver(ids, command.optsWithGlobals());
    });
}
