import { systemClock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Status } from "../../consumers/status.ts";
import { colors, isTerminal, print } from "../output.ts";
import { LiveScreen } from "../screen.ts";
import { statusLines } from "../status-view.ts";
import { formatCount, shortId } from "../table.ts";
import { type Score, scoreText } from "./scoreboard.ts";

const NOTICES_MAX = 3;

/** Shows the demo: redrawn on a terminal, a line at a time in a pipe. */
export class LiveView {
  readonly everyMs: number = isTerminal() ? 500 : 1_000;
  /** Opened by the first view: until then, lines are announced below each other. */
  #screen: LiveScreen | undefined;
  readonly #notices: string[] = [];
  #isEnded = false;
  #lines: string[] = [];
  #previous: { readonly position: bigint; readonly at: number } | undefined;

  show(status: Status, score: Score): void {
    const rate = this.#rate(status.latestPosition);
    if (!isTerminal()) {
      print(`${statusLine(status, rate)}  ${scoreText(score)}`);
      return;
    }
    this.#lines = statusLines(status, "hidden");
    this.#lines[0] = `${colors.cyan(`${rate.toFixed(0)} events/s`)} · ${this.#lines[0] ?? ""}`;
    const { lost, doubled, outOfOrder } = score;
    const paint = lost + doubled + outOfOrder === 0 ? colors.green : colors.red;
    this.#lines.unshift(colors.bold(paint(scoreText(score))));
    this.#draw();
  }

  /** The last view stands, and says so. */
  outage(reason: string): void {
    this.notice(reason);
    if (isTerminal()) this.#draw();
  }

  /** Kept in sight; the same one again is not news. */
  notice(text: string): void {
    if (this.#isEnded || this.#notices.at(-1) === text) return;
    if (!isTerminal()) print(`notice: ${text}`);
    this.#notices.push(text);
    this.#notices.splice(0, this.#notices.length - NOTICES_MAX);
  }

  /** Afterwards nothing is shown: workers that leave warn of what is meant to happen. */
  end(): void {
    this.#isEnded = true;
    this.#screen?.end();
  }

  /** Warnings of the library, where the person looks. */
  logger(): Logger {
    const ignore = (): void => {};
    const tell = (fields: object, message: string): void => {
      const error: unknown = Reflect.get(fields, "error");
      this.notice(typeof error === "string" ? `${message}: ${error}` : message);
    };
    return { debug: ignore, info: ignore, warn: tell, error: tell };
  }

  #draw(): void {
    this.#screen ??= new LiveScreen();
    this.#screen.draw([
      ...this.#lines,
      "",
      ...this.#notices.map((notice) => colors.yellow(notice)),
      colors.dim("Ctrl-C stops the workers, then the rest."),
    ]);
  }

  #rate(position: bigint): number {
    const at = systemClock.now();
    const before = this.#previous;
    this.#previous = { position, at };
    if (before === undefined || at <= before.at) return 0;
    return (Number(position - before.position) * 1000) / (at - before.at);
  }
}

function statusLine({ latestPosition, leader, workers, consumers }: Status, rate: number): string {
  const active = workers.filter((one) => one.status === "active").length;
  return [
    `position ${formatCount(latestPosition)}`,
    `${rate.toFixed(0)} events/s`,
    ...consumers.map((one) => `${one.name} ${formatCount(one.lag)} behind`),
    `${active} workers`,
    `leader ${shortId(leader.workerId)} term ${leader.term}`,
  ].join("  ");
}
