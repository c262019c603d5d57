/**
 * One for all tabs of a browser: a server speaks HTTP/1.1 with a browser over six connections at
 * most, and a stream for each tab would use them up.
 *
 * A port: hello (with its token) → told the state and every event → bye, or silent for minutes:
 * forgotten, and asked who it is when it speaks again. The last one of a token closes its stream.
 */
import type { LiveEvent } from "./events.ts";
import { ALIVE_MS, GONE_MS, type ToReader, type ToTab } from "./messages.ts";
import { SharedReader } from "./reader.ts";

interface Tab {
  readonly reader: SharedReader;
  readonly token: string;
  readonly listener: (event: LiveEvent) => void;
  aliveAtMs: number;
}

const readers = new Map<string, SharedReader>();
const tabs = new Map<MessagePort, Tab>();

function join(port: MessagePort, token: string): void {
  leave(port);
  const reader = readers.get(token) ?? new SharedReader(token);
  readers.set(token, reader);
  const say = (message: ToTab): void => port.postMessage(message);
  const listener = (event: LiveEvent): void => say({ type: "event", event });
  say({ type: "state", state: reader.state });
  reader.add(listener);
  tabs.set(port, { reader, token, listener, aliveAtMs: Date.now() });
}

function leave(port: MessagePort): void {
  const tab = tabs.get(port);
  if (tab === undefined) return;
  tabs.delete(port);
  tab.reader.remove(tab.listener);
  if (!tab.reader.isIdle) return;
  tab.reader.close();
  readers.delete(tab.token);
}

function take(port: MessagePort, message: ToReader): void {
  const tab = tabs.get(port);
  if (tab !== undefined) tab.aliveAtMs = Date.now();
  if (message.type === "hello") join(port, message.token);
  else if (message.type === "bye") leave(port);
  else if (tab === undefined) port.postMessage({ type: "who" } satisfies ToTab);
  else if (message.type === "hurry") tab.reader.hurry();
}

// A tab that was killed says nothing.
setInterval(() => {
  const deadline = Date.now() - GONE_MS;
  for (const [port, { aliveAtMs }] of tabs) if (aliveAtMs < deadline) leave(port);
}, ALIVE_MS);

addEventListener("connect", (event) => {
  const [port] = (event as MessageEvent).ports;
  if (port === undefined) return;
  port.addEventListener("message", ({ data }: MessageEvent<ToReader>) => take(port, data));
  port.start();
});
