import { Page } from "../../ui/page.tsx";
import { Loaded } from "../../ui/query-state.tsx";
import { Controls } from "./controls.tsx";
import { Happenings } from "./happenings.tsx";
import { Scoreboard } from "./scoreboard.tsx";
import { Steps } from "./steps.tsx";
import { useShop } from "./use-shop.ts";
import { Workers } from "./workers.tsx";

/** The demo: do to it what you fear, and watch the score. */
export function ShopPage() {
  const query = useShop();
  return (
    <Page title="Shop">
      <Loaded query={query}>
        {(shop) => (
          <>
            <Scoreboard shop={shop} />
            <div className="grid items-start gap-4 xl:grid-cols-[2fr_1fr]">
              <div className="flex min-w-0 flex-col gap-4">
                <Workers shop={shop} />
                <Happenings shop={shop} />
              </div>
              <div className="flex min-w-0 flex-col gap-4">
                <Controls shop={shop} />
                <Steps shop={shop} />
              </div>
            </div>
          </>
        )}
      </Loaded>
    </Page>
  );
}
