import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState } from "react";
import { plural } from "../../format.ts";
import { useSession } from "../../session/session.tsx";
import { Select } from "../../ui/field.tsx";
import { useNotify } from "../../ui/notices.tsx";
import { Panel } from "../../ui/panel.tsx";
import { type Mood, SHOP, type Shop } from "./use-shop.ts";

/** How much there is to do, and how well others play along. */
export function Controls({ shop }: { shop: Shop }) {
  return (
    <Panel title="Load">
      <div className="flex flex-col gap-4">
        <Rate shop={shop} />
        <CourierMood shop={shop} />
      </div>
    </Panel>
  );
}

/** Says what was chosen, and shows what the server made of it. */
function usePut(): (path: string, body: object) => void {
  const { api } = useSession();
  const queries = useQueryClient();
  const notify = useNotify();
  return (path, body) => {
    api
      .put<Shop>(path, body)
      .then((shop) => queries.setQueryData(SHOP, shop))
      .catch((error: unknown) => notify(error instanceof Error ? error.message : String(error)));
  };
}

const SETTLED_MS = 150;

function Rate({ shop: { rate, rateMax } }: { shop: Shop }) {
  const id = useId();
  const put = usePut();
  const [chosen, setChosen] = useState<number>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  // What was chosen is shown until the server says so, too.
  useEffect(() => setChosen((now) => (now === rate ? undefined : now)), [rate]);
  const shown = chosen ?? rate;
  const choose = (value: number): void => {
    setChosen(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => put("/v1/demo/rate", { rate: value }), SETTLED_MS);
  };
  return (
    <div className="flex flex-col gap-1">
      <div className="flex justify-between gap-2">
        <label htmlFor={id} className="text-xs font-medium text-muted">
          Events per second
        </label>
        <output htmlFor={id} className="font-medium">
          {shown}
        </output>
      </div>
      <input
        id={id}
        type="range"
        min={0}
        max={rateMax}
        step={5}
        value={shown}
        onChange={(event) => choose(Number(event.target.value))}
        className="w-full accent-accent"
      />
    </div>
  );
}

const MOOD_TEXTS: readonly (readonly [Mood, string])[] = [
  ["flaky", "is flaky, and does not know Atlantis"],
  ["good", "answers everything"],
  ["down", "is down"],
];

function CourierMood({ shop: { courier } }: { shop: Shop }) {
  const put = usePut();
  return (
    <div className="flex flex-col gap-1">
      <Select
        label="The courier, who is called over HTTP"
        options={MOOD_TEXTS}
        value={courier.mood}
        onChange={(event) => put("/v1/demo/courier", { mood: event.target.value })}
      />
      <p className="text-xs text-muted">
        {plural(courier.calls, "call")}, {plural(courier.refusals, "refusal")}
      </p>
    </div>
  );
}
