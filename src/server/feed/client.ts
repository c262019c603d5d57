import type { Clock } from "../../base/clock.ts";
import { writeEvent } from "./event.ts";
import type { FeedRow } from "./feed-row.ts";
import { type FeedFilter, isWanted, textFor } from "./filter.ts";
import { Outbox } from "./outbox.ts";
import { type Place, writePlace } from "./place.ts";
import { Summary } from "./summary.ts";
import type { RowTimes } from "./task-times.ts";

/** Every change by itself, or what became of how many. */
export type FeedViewName = "changes" | "summary";

export interface ClientOptions {
  readonly filter: FeedFilter;
  /** Where it wants to go on; undefined for what happens from now on. */
  readonly after: Place | undefined;
  readonly charsMax: number;
  readonly view: FeedViewName;
  /** Fetches more of what it has missed, or finds that it has missed nothing. */
  readonly catchUp: (client: FeedClient) => Promise<void>;
  readonly onLagged: (missed: number) => void;
  /** Its stream is closed: it holds nothing any more. */
  readonly onClosed: (client: FeedClient) => void;
  /** To bytes that nobody changes. */
  readonly encode: (text: string) => Uint8Array;
  readonly clock: Clock;
  /** How long one that was ended may take to read the rest. */
  readonly goodbyeMs: number;
}

/** Of one piece that is given to the network. */
const PIECE_CHARS = 64 * 1024;

/**
 * One reader of the feed, and its stream of messages.
 *
 * - waiting: the feed is not complete yet, or has not come to where the client was elsewhere
 * - behind: it reads what it has missed, page by page, as fast as it takes them
 * - live: it gets what everybody gets; one that takes it, but too slowly, is behind again
 *
 * From any of them it goes back to waiting when the feed was interrupted. A live one that does not
 * take what it gets loses what has no room, and is told so. Nobody waits for either.
 *
 * One that was ended is told nothing new. It is closed when it has read the rest, and cut when it
 * does not within a few seconds; until then it counts.
 */
export class FeedClient {
  readonly filter: FeedFilter;
  readonly stream: ReadableStream<Uint8Array>;
  phase: "waiting" | "behind" | "live" = "waiting";
  /** Of one that is behind: everything up to it was told. */
  cursor = 0n;
  after: Place | undefined;
  readonly #options: ClientOptions;
  readonly #outbox: Outbox;
  readonly #summary: Summary | undefined;
  readonly #closing = new AbortController();
  /** Of the row at which it goes on: what it has seen of it. */
  #known: { readonly position: bigint; readonly index: number } | undefined;
  #wake: (() => void) | undefined;
  #isOver = false;
  #cancelCut = (): void => {};
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #place: Place | undefined;
  #lostAfter: Place | undefined;
  #takes = 0;
  #takesSeen = 0;
  #takesBefore = 0;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.filter = options.filter;
    this.after = options.after;
    this.#outbox = new Outbox(options.charsMax);
    this.#summary = options.view === "summary" ? new Summary() : undefined;
    const source = {
      start: (controller: ReadableStreamDefaultController<Uint8Array>): void => {
        this.#controller = controller;
      },
      pull: (controller: ReadableStreamDefaultController<Uint8Array>) => this.#pull(controller),
      cancel: (): void => this.#leave(),
    };
    // Nothing is kept in the stream itself: what waits is counted in one place.
    this.stream = new ReadableStream(source, { highWaterMark: 0 });
  }

  /** Aborts when its stream is closed. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  get hasSummary(): boolean {
    return this.#summary !== undefined;
  }

  /** Whether it did not read, and is not told anything before it has read what is left. */
  get hasLost(): boolean {
    return this.#outbox.hasLost;
  }

  /** What it has not taken yet. */
  get waitingChars(): number {
    return this.#outbox.chars;
  }

  /** Whether it takes what it gets, but has half of its room full. */
  askPressed(): boolean {
    const hasTaken = this.#takes > this.#takesSeen;
    this.#takesSeen = this.#takes;
    if (this.#isOver || !hasTaken || this.phase !== "live") return false;
    return !this.#outbox.hasLost && this.#outbox.chars > this.#options.charsMax / 2;
  }

  /** Whether it took something since the last time this was asked, or had nothing to take. */
  askAwake(): boolean {
    const isAwake = this.#outbox.isEmpty || this.#takes > this.#takesBefore;
    this.#takesBefore = this.#takes;
    return isAwake;
  }

  /** Of one that is live, and was told everything up to there: it fetches the rest by itself. */
  fallBehind(position: bigint): void {
    this.phase = "behind";
    this.cursor = position;
  }

  /** From here on it is told everything. */
  begin(place: Place, phase: "behind" | "live", isReplay: boolean): void {
    if (this.#isOver) return;
    this.phase = phase;
    this.after = undefined;
    this.#place = place;
    this.#lostAfter = undefined;
    const { position, index } = place;
    this.#known = index === undefined ? undefined : { position, index };
    this.cursor = index === undefined ? position : position - 1n;
    const id = writePlace(place);
    this.#say(writeEvent("ready", { after: id, replay: isReplay }, id));
  }

  /** Whatever it knew is void. */
  reset(reason: string): void {
    if (this.#isOver) return;
    this.phase = "waiting";
    this.after = undefined;
    this.#outbox.clear();
    this.#summary?.clear();
    this.#say(writeEvent("reset", { reason }));
  }

  /**
   * The next row in the order of positions, of one that is behind or reads summaries; how long
   * things took, if somebody measured it.
   */
  give(era: string, row: FeedRow, times?: RowTimes): void {
    if (this.#isOver) return;
    const skipped = row.position === this.#known?.position ? this.#known.index : 0;
    if (this.#summary !== undefined && row.kind === "task") {
      if (isWanted(this.filter, row)) {
        this.#summary.add(row, skipped, times);
        if (this.phase === "behind") this.#summary.noteReplay();
      }
      this.#place = { era, position: row.position };
      return;
    }
    const text = textFor(this.filter, row, skipped);
    const place = { era, position: row.position };
    if (text !== "") {
      // Its id is behind theirs: who goes on from it must have been told of them.
      const isSummedUp = this.#saySummary();
      if (this.phase === "behind") this.#outbox.put(text);
      else if (isSummedUp) this.offer(text, row.count - skipped, place);
      else this.#lose(row.count - skipped);
    }
    this.#place = place;
  }

  /** Of one that is live: so many messages of the next row that it wants. */
  offer(text: string, messages: number, place: Place): void {
    if (this.#isOver) return;
    if (this.#outbox.add(text, messages)) this.#wake?.();
    else this.#lostAfter ??= this.#place;
    this.#place = place;
  }

  #lose(messages: number): void {
    this.#outbox.lose(messages);
    this.#lostAfter ??= this.#place;
  }

  /** What became of tasks since the last time, if it has taken that: else it is told later. */
  sumUp(): void {
    if (!this.#isOver && this.#outbox.isEmpty && !this.#outbox.hasLost) this.#saySummary();
  }

  /** Something that is said only when there is nothing else. Whether it was. */
  beat(text: string): boolean {
    if (this.#isOver || !this.#outbox.isEmpty || this.#outbox.hasLost) return false;
    this.#say(text);
    return true;
  }

  /** Something that is said once, behind what waits already, unless there is no room. */
  greet(text: string): boolean {
    if (this.#isOver || !this.#outbox.add(text, 0)) return false;
    this.#wake?.();
    return true;
  }

  /** No more comes. What is waiting is still sent. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.after = undefined;
    const { clock, goodbyeMs } = this.#options;
    this.#cancelCut = clock.after(goodbyeMs, () => this.cut());
    this.#wake?.();
  }

  /** The same, and what is waiting is not sent: it may not see it any more. */
  silence(): void {
    this.#outbox.clear();
    this.end();
  }

  /** No more comes, and nobody waits for it to read. Its connection is broken off. */
  cut(): void {
    this.#isOver = true;
    this.#controller?.error(new Error("the client does not read"));
    this.#leave();
  }

  #leave(): void {
    this.#isOver = true;
    this.#cancelCut();
    this.#outbox.clear();
    this.#closing.abort();
    this.#options.onClosed(this);
    this.#wake?.();
  }

  /** False when there is no room for it: it is kept, grows, and is told later. */
  #saySummary(): boolean {
    const text = this.#summaryText();
    if (text === "") return true;
    if (this.phase === "behind") this.#outbox.put(text);
    else if (!this.#outbox.add(text, 0)) return false;
    this.#summary?.clear();
    this.#wake?.();
    return true;
  }

  #summaryText(): string {
    const place = this.#place;
    if (this.#summary === undefined || this.#summary.isEmpty || place === undefined) return "";
    return `id: ${writePlace(place)}\nevent: summary\ndata: ${this.#summary.text()}\n\n`;
  }

  #say(text: string): void {
    this.#outbox.add(text, 0);
    this.#wake?.();
  }

  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    for (;;) {
      const text = this.#outbox.take(PIECE_CHARS) || this.#lagged();
      if (text !== "") {
        this.#takes += 1;
        controller.enqueue(this.#options.encode(text));
        return;
      }
      if (this.#isOver) {
        if (!this.closed.aborted) controller.close();
        this.#leave();
        return;
      }
      if (this.phase === "behind") await this.#options.catchUp(this);
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
      }
    }
  }

  /** It has read everything that was kept: what was not is told now, and it goes on from here. */
  #lagged(): string {
    const place = this.#place;
    if (!this.#outbox.hasLost || place === undefined) return "";
    const missed = this.#outbox.forgive();
    const after = this.#lostAfter === undefined ? undefined : writePlace(this.#lostAfter);
    this.#lostAfter = undefined;
    this.#options.onLagged(missed);
    // Who goes on from its id must have been told of what was summed up until then.
    const summary = this.#summaryText();
    this.#summary?.clear();
    return summary + writeEvent("lagged", { missed, after }, writePlace(place));
  }
}
