import type { Clock } from "../../base/clock.ts";
import { LimitError, UnavailableError } from "../../base/errors.ts";
import type { Queryable } from "../../db/database.ts";
import { FeedClient, type FeedViewName } from "./client.ts";
import { FeedRow } from "./feed-row.ts";
import { type FeedFilter, isWanted, messagesOf, signatureOf, textFor } from "./filter.ts";
import type { FeedMetrics } from "./metrics.ts";
import type { Place } from "./place.ts";
import { ReadTurns } from "./read-turns.ts";
import { PAGE_CHANGES, RecentRows, type RowsUpTo } from "./recent-rows.ts";
import { readChanges } from "./sql/feed.ts";
import { TaskTimes } from "./task-times.ts";

export interface HubOptions {
  /** For what clients have missed. What happens now comes from one reader for all of them. */
  readonly db: Queryable;
  readonly metrics: FeedMetrics;
  /** Somebody came: there is something to read, and to tell. */
  readonly onClient: () => void;
  /** Something of the cluster has changed, and clients are told of it. */
  readonly onClusterChange?: () => void;
  /** What may wait for one client. Defaults to a million characters. */
  readonly clientCharsMax?: number;
  readonly clock: Clock;
  /** How long one that was ended may take to read the rest. Defaults to 5,000. */
  readonly goodbyeMs?: number;
}

export interface ClientLimits {
  readonly clientsMax: number;
  readonly tenantClientsMax: number;
}

interface Group {
  readonly filter: FeedFilter;
  readonly clients: Set<FeedClient>;
}

/** Who reads, from where on, and in which form. */
export interface Subscription {
  readonly filter: FeedFilter;
  readonly after: Place | undefined;
  /** Defaults to "changes". */
  readonly view?: FeedViewName;
}

const CHARS_MAX = 1024 * 1024;
const GOODBYE_MS = 5_000;
const RECENT_CHANGES_MAX = 20_000;
const RECENT_CHARS_MAX = 16 * 1024 * 1024;
const GONE = "what follows this place is no longer kept; read the present state again";
export const INTERRUPTED = "changes were not recorded for a while; read the present state again";

/** The clients of one server, and what they are told. */
export class FeedHub {
  readonly #options: HubOptions;
  readonly #clients = new Set<FeedClient>();
  /** Those who want the same, by what they want: each row is looked at once for all of them. */
  readonly #groups = new Map<string, Group>();
  /** Those who read summaries. */
  readonly #summing = new Set<FeedClient>();
  readonly #tenants = new Map<string, number>();
  readonly #recent = new RecentRows(RECENT_CHANGES_MAX, RECENT_CHARS_MAX);
  readonly #times = new TaskTimes();
  #era: string | undefined;
  #frontier = 0n;
  #clusterChanges = 0;
  #acts = 0;
  /** Those who are behind read one after the other, and not before another tenant's turn. */
  readonly #turns = new ReadTurns();
  readonly #encoder = new TextEncoder();
  #encoded = { text: "", bytes: new Uint8Array() };
  #isClosed = false;

  constructor(options: HubOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#clients.size === 0;
  }

  /** Whether clients are told what happens. */
  get isOpen(): boolean {
    return this.#era !== undefined;
  }

  get clients(): ReadonlySet<FeedClient> {
    return this.#clients;
  }

  /** Whether somebody wants to be told how many, and how long. */
  get hasSummaries(): boolean {
    return this.#summing.size > 0;
  }

  /** Grows with every change of the cluster that is told. */
  get clusterChanges(): number {
    return this.#clusterChanges;
  }

  /** Grows with every act of somebody, which is among these changes. */
  get acts(): number {
    return this.#acts;
  }

  /** Refuses one too many. */
  subscribe(wanted: Subscription, limits: ClientLimits): FeedClient {
    const { filter, after, view = "changes" } = wanted;
    if (this.#isClosed) throw new UnavailableError("this server is about to stop; ask another");
    const ofTenant = this.#tenants.get(filter.tenant) ?? 0;
    if (this.#clients.size >= limits.clientsMax || ofTenant >= limits.tenantClientsMax) {
      throw new LimitError("too many clients read the feed here; ask another server", 5_000);
    }
    const { metrics, clock, clientCharsMax, goodbyeMs = GOODBYE_MS } = this.#options;
    const client = new FeedClient({
      filter,
      after,
      charsMax: clientCharsMax ?? CHARS_MAX,
      view,
      catchUp: (one) => this.#catchUp(one),
      onLagged: (missed) => metrics.missed.add(missed),
      onClosed: (one) => this.#leave(one),
      encode: (text) => this.#encode(text),
      clock,
      goodbyeMs,
    });
    this.#clients.add(client);
    if (view === "summary") this.#summing.add(client);
    else this.#group(client);
    this.#tenants.set(filter.tenant, ofTenant + 1);
    metrics.clients.set(this.#clients.size);
    this.#admit(client);
    this.#options.onClient();
    return client;
  }

  #group(client: FeedClient): void {
    const { filter } = client;
    const signature = signatureOf(filter);
    const group = this.#groups.get(signature) ?? { filter, clients: new Set() };
    group.clients.add(client);
    this.#groups.set(signature, group);
  }

  /** The feed is complete behind this position: whoever waits for that is told. */
  open(era: string, frontier: bigint): void {
    this.#era = era;
    this.#frontier = frontier;
    this.#recent.clear(frontier);
    for (const client of this.#clients) this.#admit(client);
  }

  /** The next row. Returns how many of its changes somebody wants. */
  publish(row: FeedRow): number {
    const era = this.#era;
    if (era === undefined) return 0;
    this.#recent.add(row);
    this.#options.metrics.changes.add(row.count);
    this.#sumUp(era, row);
    if (row.kind !== "task") {
      this.#clusterChanges += 1;
      if (row.kind === "act") this.#acts += 1;
      this.#options.onClusterChange?.();
    }
    const place = { era, position: row.position };
    let wanted = 0;
    for (const { filter, clients } of this.#groups.values()) {
      if (!isWanted(filter, row)) continue;
      // Nobody writes down what all who want it will have missed: it is only counted.
      const isPlain = row.kind === "task" && filter.taskId === undefined;
      const isHeard = !isPlain || hasHearer(clients);
      const text = isHeard ? textFor(filter, row) : "";
      if (isHeard && text === "") continue;
      const messages = messagesOf(filter, row);
      for (const client of clients) {
        if (client.phase === "live") client.offer(text, messages, place);
      }
      if (isHeard) wanted = Math.max(wanted, messages);
    }
    this.#frontier = row.position;
    return wanted;
  }

  /** There is no other change up to here. */
  reach(frontier: bigint): void {
    this.#frontier = frontier;
    for (const client of this.#clients) if (client.phase === "waiting") this.#admit(client);
  }

  /** Times are taken while somebody wants them; who comes later misses a few. */
  #sumUp(era: string, row: FeedRow): void {
    if (this.#summing.size === 0) {
      this.#times.clear();
      return;
    }
    const times = this.#times.note(row);
    for (const client of this.#summing) if (client.phase === "live") client.give(era, row, times);
  }

  /** Changes may have been missed: everybody begins anew, once it is open again. */
  reset(reason: string): void {
    this.sleep();
    for (const client of this.#clients) if (client.phase !== "waiting") client.reset(reason);
  }

  /** Nothing is told until it is opened again. */
  sleep(): void {
    this.#era = undefined;
    this.#recent.clear(0n);
    this.#times.clear();
  }

  /** The highest place to which somebody wants to go back and that was not reached here yet. */
  get awaited(): bigint | undefined {
    let highest: bigint | undefined;
    for (const { phase, after } of this.#clients) {
      if (phase !== "waiting" || after === undefined || after.era !== this.#era) continue;
      if (highest === undefined || after.position > highest) highest = after.position;
    }
    return highest;
  }

  /** Nothing was ever written behind this position: who claims to have been there is mistaken. */
  refuseBehind(newest: bigint): void {
    for (const client of this.#clients) {
      const { phase, after } = client;
      if (phase !== "waiting" || after === undefined || after.position <= newest) continue;
      client.reset(GONE);
      this.#admit(client);
    }
  }

  /** Those who take what they get, and not as fast as it comes, read it at their own pace. */
  relieve(): void {
    for (const client of this.#clients) if (client.askPressed()) client.fallBehind(this.#frontier);
  }

  /** Ends all streams, and takes no more. */
  close(): void {
    this.#isClosed = true;
    for (const client of this.#clients) client.end();
  }

  #admit(client: FeedClient): void {
    const era = this.#era;
    if (era === undefined) return;
    const { after } = client;
    const here = { era, position: this.#frontier };
    if (after === undefined) client.begin(here, "live", false);
    else if (after.era !== era) {
      client.reset(GONE);
      client.begin(here, "live", false);
    } else if (after.position <= this.#frontier) client.begin(after, "behind", true);
  }

  /** Hundreds are told the same one after another: it is encoded once for all of them. */
  #encode(text: string): Uint8Array {
    if (this.#encoded.text !== text) {
      this.#encoded = { text, bytes: this.#encoder.encode(text) };
    }
    return this.#encoded.bytes;
  }

  #leave(client: FeedClient): void {
    if (!this.#clients.delete(client)) return;
    this.#summing.delete(client);
    const { tenant } = client.filter;
    const signature = signatureOf(client.filter);
    const group = this.#groups.get(signature);
    group?.clients.delete(client);
    if (group?.clients.size === 0) this.#groups.delete(signature);
    const left = (this.#tenants.get(tenant) ?? 1) - 1;
    if (left === 0) this.#tenants.delete(tenant);
    else this.#tenants.set(tenant, left);
    this.#options.metrics.clients.set(this.#clients.size);
  }

  async #catchUp(client: FeedClient): Promise<void> {
    const era = this.#era;
    if (era === undefined) {
      client.reset(INTERRUPTED);
      return;
    }
    const near = this.#recent.after(client.cursor, this.#frontier);
    const { tenant } = client.filter;
    const read = (): Promise<RowsUpTo | undefined> => this.#readPage(era, client.cursor);
    const page = near ?? (await this.#turns.take(tenant, read));
    if (client.phase !== "behind" || this.#era !== era) return; // It begins anew.
    if (page === undefined) {
      client.reset(GONE);
      this.#admit(client);
      return;
    }
    for (const row of page.rows) client.give(era, row);
    client.cursor = page.to;
    // Nothing was published since: the page ends where the others are.
    if (page.to >= this.#frontier) client.phase = "live";
  }

  async #readPage(era: string, cursor: bigint): Promise<RowsUpTo | undefined> {
    const frontier = this.#frontier; // Known before the rows are read, so it may judge them.
    const page = await readChanges(this.#options.db, era, cursor, PAGE_CHANGES);
    if (page === undefined || page.floor > cursor) return undefined;
    const rows = page.rows
      .filter((row) => BigInt(row.position) <= frontier)
      .map((row) => new FeedRow(era, row));
    const last = rows.at(-1);
    const isCut = page.isCut && rows.length === page.rows.length;
    return { rows, to: isCut && last !== undefined ? last.position : frontier };
  }
}

function hasHearer(clients: ReadonlySet<FeedClient>): boolean {
  for (const client of clients) if (!client.hasLost) return true;
  return false;
}
