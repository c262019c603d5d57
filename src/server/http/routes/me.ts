import { z } from "@hono/zod-openapi";
import { VERSION } from "../../../base/version.ts";
import { ACTS, type Caller, may, mayOnSome } from "../../auth/caller.ts";
import { type Endpoint, endpoint } from "../endpoint.ts";
import { instant } from "../schemas.ts";

const view = z
  .object({
    tenant: z.string(),
    subject: z.string(),
    scopes: z.array(z.string()),
    queues: z.union([z.literal("all"), z.array(z.string())]),
    expiresAt: instant.optional(),
    acts: z.array(z.string()).openapi({
      description: "What the token allows, on some queue at least",
      example: ["task.read", "feed.read"],
    }),
    version: z.string().openapi({ description: "Of the server" }),
    pages: z.array(z.string()).optional().openapi({
      description: "Of the dashboard, those that only some servers have",
    }),
  })
  .openapi("Me");

function toView(caller: Caller, pages: readonly string[]): object {
  const { tenant, subject, scopes, queues, expiresAt } = caller;
  // What concerns the cluster concerns all queues, as where a request is let in.
  const isAllowed = (act: (typeof ACTS)[number]): boolean =>
    act.startsWith("cluster.") ? may(caller, act) : mayOnSome(caller, act);
  return {
    tenant,
    subject,
    scopes: [...scopes].sort(),
    queues: queues === "all" ? "all" : [...queues].sort(),
    expiresAt: expiresAt === "never" ? undefined : expiresAt,
    acts: ACTS.filter(isAllowed),
    version: VERSION,
    ...(pages.length === 0 ? {} : { pages }),
  };
}

export const meEndpoints = (pages: readonly string[]): Endpoint[] => [
  endpoint({
    method: "get",
    path: "/v1/me",
    tag: "Server",
    summary: "Who the caller is, and what its token allows",
    act: "task.read",
    answers: { 200: { description: "The caller", schema: view } },
    handle({ caller }) {
      return Promise.resolve({ status: 200, body: toView(caller, pages) });
    },
  }),
];
