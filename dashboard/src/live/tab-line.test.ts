import { expect, it } from "vitest";
import type { LiveEvent } from "./events.ts";
import { NOTHING_YET } from "./live-state.ts";
import type { ToTab } from "./messages.ts";
import { LiveStore } from "./tab-line.ts";

const LIVE = { ...NOTHING_YET, connection: { state: "live" as const } };

it("a tab that comes back to a reader that went on is told to look again", () => {
  let say = (_message: ToTab): void => {};
  const line = { hurry: () => {}, close: () => {} };
  const store = new LiveStore("token", (_token, hear) => {
    say = hear;
    return line;
  });
  const told: LiveEvent[] = [];
  store.listen((event) => told.push(event));

  say({ type: "state", state: LIVE });
  expect([told, store.state().connection.state]).toEqual([[], "live"]);
  say({ type: "who" });
  say({ type: "state", state: LIVE });
  expect(told).toEqual([{ kind: "reset" }]);
});
