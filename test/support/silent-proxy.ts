import type { Socket } from "node:net";
import { startRelay } from "./relay.ts";

/** Stands between a program and the server, and falls silent as a network does. */
export interface SilentProxy {
  readonly url: string;
  /**
   * From now on nothing arrives on any connection, old or new, and nobody is told: the sockets stay
   * open, and not even their end gets through. With "answers" the server still hears everything.
   */
  swallow(what?: "all" | "answers"): void;
  /**
   * New connections work again, also those that were begun meanwhile: what was said there is
   * repeated. Older ones that were silent stay so, as if a router had forgotten them.
   */
  mend(): void;
}

type Silence = "all" | "answers" | undefined;

interface Line {
  silence: Silence;
  /** Undefined: it fell silent when something had been said, and loses what is said now. */
  readonly unheard: (() => void)[] | undefined;
}

export async function startSilentProxy(target: string): Promise<SilentProxy> {
  const lines = new Set<Line>();
  let silence: Silence;
  const { url } = await startRelay(
    target,
    (client, server) => {
      const line: Line = { silence, unheard: silence === undefined ? undefined : [] };
      lines.add(line);
      carry(line, client, server, () => line.silence !== "all");
      carry(line, server, client, () => line.silence === undefined);
    },
    { allowHalfOpen: true },
  );
  return {
    url,
    swallow(what = "all") {
      silence = what;
      for (const line of lines) line.silence = what;
    },
    mend() {
      silence = undefined;
      for (const line of lines) {
        if (line.unheard === undefined) continue;
        line.silence = undefined;
        for (const say of line.unheard.splice(0)) say();
      }
    },
  };
}

/** What one side says, and that it hangs up, reaches the other only while `isHeard`. */
function carry(line: Line, from: Socket, to: Socket, isHeard: () => boolean): void {
  const say = (what: () => void): void => {
    if (isHeard()) what();
    else line.unheard?.push(what);
  };
  from.on("data", (data) => say(() => void to.write(data)));
  from.on("end", () => say(() => void to.end()));
  from.on("close", () => say(() => void to.destroy()));
}
