import { z } from "@hono/zod-openapi";
import { type Clock, wallClock } from "../../../base/clock.ts";
import { InvalidInputError } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import { Secret } from "../../../base/secret.ts";
import { type Authenticator, bearerOf } from "../../auth/authenticator.ts";
import { type Caller, may, requireMay } from "../../auth/caller.ts";
import { StreamAuth } from "../../auth/stream-auth.ts";
import type { FeedClient, FeedViewName } from "../../feed/client.ts";
import { FEED_STATES } from "../../feed/event.ts";
import type { Feed } from "../../feed/feed.ts";
import type { FeedFilter } from "../../feed/filter.ts";
import { type Place, readPlace } from "../../feed/place.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import type { ResolvedHttpLimits } from "../options.ts";
import { name, taskId } from "../schemas.ts";

export interface FeedEndpointContext {
  readonly authenticator: Authenticator;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits: ResolvedHttpLimits;
  readonly recheckMs?: number;
}

const STATES_MAX = 200;
const PLACE_MAX = 100;

const query = z.strictObject({
  queue: name.optional(),
  state: z
    .string()
    .max(STATES_MAX)
    .transform((text) => text.split(","))
    .pipe(z.array(z.enum(FEED_STATES)))
    .optional()
    .openapi({ type: "string", example: "failed,dead", description: "One, or several" }),
  task: taskId.optional(),
  view: z.enum(["changes", "summary"]).optional().openapi({
    description: "Every change by itself, or four times a second what became of how many",
  }),
  after: z.string().max(PLACE_MAX).optional().openapi({
    description: "The id of the last event that was seen; Last-Event-ID holds over it",
  }),
});
type FeedQuery = z.infer<typeof query>;

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "x-accel-buffering": "no", // Proxies that gather answers would hold it back.
};

/** Of what the caller may see, what it asked for. */
function filterOf(caller: Caller, { queue, state, task }: FeedQuery): FeedFilter {
  if (queue !== undefined) requireMay(caller, "feed.read", queue);
  const isOfTasks = queue !== undefined || state !== undefined || task !== undefined;
  return {
    tenant: caller.tenant,
    queues: queue === undefined ? caller.queues : new Set([queue]),
    ...(state === undefined ? {} : { states: new Set<string>(state) }),
    ...(task === undefined ? {} : { taskId: task }),
    withCluster: !isOfTasks && may(caller, "cluster.read"),
    withActs: !isOfTasks,
  };
}

function viewOf({ view = "changes", task }: FeedQuery): FeedViewName {
  if (view === "changes" || task === undefined) return view;
  throw new InvalidInputError("a summary is of many tasks: leave out task, or view");
}

function placeOf(headers: Headers, { after }: FeedQuery): Place | undefined {
  const given = headers.get("last-event-id") || after;
  if (given === undefined) return undefined;
  const place = readPlace(given);
  if (place !== undefined) return place;
  throw new InvalidInputError("Last-Event-ID and after must be an id that this feed has given");
}

export function feedEndpoints(feed: Feed, context: FeedEndpointContext): Endpoint[] {
  const { feedClientsMax, feedClientsPerTenantMax } = context.limits;
  const limits = { clientsMax: feedClientsMax, tenantClientsMax: feedClientsPerTenantMax };
  return [
    endpoint({
      method: "get",
      path: "/v1/feed",
      tag: "Feed",
      summary: "What becomes of tasks, as it happens (server-sent events)",
      description:
        "Events of the caller's tasks; without a filter also that somebody acted on what the " +
        "caller may see, and with an admin token who did, and of consumers, workers, the ring " +
        "and gaps. From the event `ready` on nothing is missing.",
      act: "feed.read",
      query,
      headers: z.object({ "last-event-id": z.string().max(PLACE_MAX).optional() }),
      answers: {
        200: { description: "Events", schema: z.string(), type: "text/event-stream" },
      },
      handle({ caller, query: given, headers, signal, isHead }) {
        const wanted = { filter: filterOf(caller, given), after: placeOf(headers, given) };
        const view = viewOf(given);
        // Nobody would read the stream.
        if (isHead) return Promise.resolve({ status: 200, headers: HEADERS });
        const client = feed.hub.subscribe({ ...wanted, view }, limits);
        void endWithToken(client, caller, { headers, signal, context });
        return Promise.resolve({ status: 200, stream: client.stream, headers: HEADERS });
      },
    }),
  ];
}

interface Opened {
  readonly headers: Headers;
  readonly signal: AbortSignal;
  readonly context: FeedEndpointContext;
}

/** A stream outlives the look at its token: it ends when that does. */
async function endWithToken(
  client: FeedClient,
  caller: Caller,
  { headers, signal, context }: Opened,
): Promise<void> {
  const bearer = new Secret(bearerOf(headers.get("authorization") ?? undefined));
  const auth = new StreamAuth(bearer, caller, { ...context, wallClock });
  const over = AbortSignal.any([signal, client.closed]);
  const refusal = await auth.watch(over);
  if (refusal !== undefined) {
    const { reason, detail } = refusal;
    const { tenant, tokenId } = caller;
    context.logger.info({ tenant, tokenId, reason, detail }, "the token of a feed has ended");
  }
  client.silence();
}
