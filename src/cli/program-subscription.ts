import { type Command, Option } from "commander";
import { list, seconds, subscriptionId } from "./options.ts";

const TENANT = 'whose subscriptions (default: "default")';

/** What a person does with subscriptions. */
export function addSubscriptionCommands(program: Command): void {
  const subscription = program
    .command("subscription")
    .description("manage who is told that work waits");
  addList(subscription);
  addAdd(subscription);
  addRenew(subscription);
  addRemove(subscription);
}

function addList(subscription: Command): void {
  subscription
    .command("list")
    .description("show who is told, and who cannot be; never their secrets")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (_: object, command: Command) => {
      const { listSubscriptions } = await import("./commands/subscription.ts");
      await listSubscriptions(command.optsWithGlobals());
    });
}

function addAdd(subscription: Command): void {
  subscription
    .command("add")
    .description("have an address told that work waits, and print the secret of its notices")
    .argument("<url>", "where they go")
    .option("--queues <names>", "only of these, with commas (default: all of the tenant)", list)
    .addOption(
      new Option("--mode <mode>", "who of several is told (default: fanout)").choices([
        "fanout",
        "group",
        "hash",
      ]),
    )
    .option("--group <name>", "whose turns it shares, with --mode group")
    .option("--ttl <seconds>", "it ends then, unless it is renewed (default: 300)", seconds)
    .option("--min-interval <seconds>", "between two notices (default: 5)", seconds)
    .option("--secret-file <file>", "take over the secret in it; - for standard input")
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (url: string, _: object, command: Command) => {
      const { addSubscription } = await import("./commands/subscription.ts");
      await addSubscription(url, command.optsWithGlobals());
    });
}

function addRenew(subscription: Command): void {
  subscription
    .command("renew")
    .description("let a subscription live on from now")
    .argument("<id>", "as list shows it", subscriptionId)
    .option("--ttl <seconds>", "for so long (default: as before)", seconds)
    .option("--tenant <tenant>", TENANT)
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { renewSubscription } = await import("./commands/subscription.ts");
      await renewSubscription(id, command.optsWithGlobals());
    });
}

function addRemove(subscription: Command): void {
  subscription
    .command("remove")
    .description("end a subscription now")
    .argument("<id>", "as list shows it", subscriptionId)
    .option("--tenant <tenant>", TENANT)
    .option("--yes", "do not ask")
    .option("--json", "print one JSON document")
    .action(async (id: string, _: object, command: Command) => {
      const { removeSubscription } = await import("./commands/subscription.ts");
      await removeSubscription(id, command.optsWithGlobals());
    });
}
