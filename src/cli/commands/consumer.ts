import { InvalidInputError } from "../../base/errors.ts";
import type { Tidemill } from "../../worker/tidemill.ts";
import { confirm } from "../confirm.ts";
import type { GlobalFlags } from "../options.ts";
import { print, printJson } from "../output.ts";
import { withTidemill } from "../session.ts";
import { consumerLines } from "../status-view.ts";

interface Confirmed extends GlobalFlags {
  readonly yes?: boolean;
}

export async function listConsumers(
  flags: GlobalFlags & { readonly json?: boolean },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const consumers = await mill.listConsumers();
    if (flags.json === true) printJson(consumers);
    else print(consumerLines(consumers).join("\n").trimStart());
  });
}

export async function pauseConsumer(
  name: string,
  flags: GlobalFlags & { readonly reason?: string },
): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { reason } = flags;
    await consumers.pause(name, reason === undefined ? {} : { reason });
    const { checkpoint, state } = await consumers.progress(name);
    const how = state === "quarantined" ? "was quarantined before and stays so" : "is paused";
    print(`Consumer ${name} ${how}, at position ${checkpoint}.`);
  });
}

export async function resumeConsumer(name: string, flags: GlobalFlags): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { resumed, replaying } = await consumers.resume(name);
    const { checkpoint } = await consumers.progress(name);
    const what = resumed > 0 ? "goes on" : "was not stopped";
    const replay = replaying > 0 ? `, and replays ${replaying} parked stream(s)` : "";
    print(`Consumer ${name} ${what} at position ${checkpoint}${replay}.`);
  });
}

export async function rewindConsumer(
  name: string,
  flags: Confirmed & { readonly to: bigint },
): Promise<void> {
  await withTidemill(flags, async ({ consumers }) => {
    const { checkpoint } = await consumers.progress(name);
    if (flags.to <= checkpoint) {
      await confirm(
        `This rewinds ${name} from ${checkpoint} to ${flags.to}: it handles those events again, ` +
          "on top of what it wrote for them.",
        flags,
      );
    }
    await consumers.rewind(name, { to: flags.to });
    print(`Consumer ${name} went back to ${flags.to}.`);
  });
}

export async function skipEvent(
  name: string,
  flags: Confirmed & { readonly reason: string; readonly position?: bigint },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { consumers } = mill;
    const { reason, position } = flags;
    await refuseSplit(mill, name);
    const { checkpoint } = await consumers.progress(name);
    const which = position === undefined ? "its next event" : `position ${position}`;
    await confirm(
      `This makes ${name}, which is at ${checkpoint}, pass ${which} for ever unhandled.`,
      flags,
    );
    const skipped = await consumers.skip(name, {
      reason,
      ...(position === undefined ? {} : { position }),
    });
    print(`Consumer ${name} passed position ${skipped} and goes on.`);
  });
}

export async function retireConsumer(
  name: string,
  flags: Confirmed & { readonly force?: boolean },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { consumers } = mill;
    await refusePartition(mill, name);
    const { checkpoint } = await consumers.progress(name);
    await confirm(`This forgets ${name} and its position ${checkpoint}.`, flags);
    await consumers.retire(name, { force: flags.force === true });
    print(`Consumer ${name} is retired.`);
  });
}

export async function repartitionConsumer(
  name: string,
  flags: GlobalFlags & { readonly partitions: number },
): Promise<void> {
  await withTidemill(flags, async (mill) => {
    const { partitions } = flags;
    await refusePartition(mill, name);
    await mill.consumers.repartition(name, { partitions });
    print(`Consumer ${name} has ${partitions} partition(s); start workers that say the same.`);
  });
}

/** One event belongs to one partition; in the others, a healthy event would be passed. */
async function refuseSplit(mill: Tidemill, name: string): Promise<void> {
  const parts = (await mill.listConsumers()).filter((one) => one.name.startsWith(`${name}/`));
  if (parts.length === 0) return;
  const stopped = parts.find((one) => one.state === "quarantined") ?? parts[0];
  throw new InvalidInputError(
    `consumer ${name} has ${parts.length} partitions; name the one to skip in, ` +
      `such as ${stopped?.name}`,
  );
}

/** The other partitions would be left without it. */
async function refusePartition(mill: Tidemill, name: string): Promise<void> {
  const whole = name.replace(/\/\d+$/, "");
  const parts = (await mill.listConsumers()).filter((one) => one.name.startsWith(`${whole}/`));
  if (whole === name || parts.length < 2) return;
  throw new InvalidInputError(`${name} is one partition; name the whole consumer, ${whole}`);
}
