import { OpenAPIHono, z } from "@hono/zod-openapi";
import { VERSION } from "../../base/version.ts";
import type { Endpoint } from "./endpoint.ts";

/** A place that needs no token. */
export interface OpenPlace {
  readonly path: string;
  readonly summary: string;
  readonly type: string;
  readonly answers: Readonly<Record<number, string>>;
}

export type Document = ReturnType<OpenAPIHono["getOpenAPI31Document"]>;

const problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    code: z.string().openapi({ example: "TM_NOT_FOUND" }),
    detail: z.string().optional(),
    requestId: z.string(),
  })
  .openapi("Problem");

const codeqError = z.object({ error: z.string() }).openapi("CodeqError");

const DESCRIPTION = `Durable work on PostgreSQL. Every call under /v1 brings a bearer token, which
alone says whose tasks it is about. Errors are problem details (RFC 9457) with a code; under
/v1/codeq they are what clients of CodeQ know. Every answer has an x-request-id.`;

/** Everything that is served, generated from what serves it. */
export function describe(endpoints: readonly Endpoint[], open: readonly OpenPlace[]): Document {
  const { openAPIRegistry: registry, ...app } = makeRegistry();
  registry.registerComponent("securitySchemes", "bearer", { type: "http", scheme: "bearer" });
  for (const endpoint of endpoints) registry.registerPath(toRoute(endpoint));
  for (const { path, summary, type, answers } of open) {
    const responses = Object.entries(answers).map(([status, description]) => [
      status,
      { description, content: { [type]: { schema: {} } } },
    ]);
    registry.registerPath({
      method: "get",
      path,
      tags: ["Server"],
      summary,
      security: [],
      responses: Object.fromEntries(responses),
    });
  }
  return app.document();
}

function makeRegistry(): {
  readonly openAPIRegistry: OpenAPIHono["openAPIRegistry"];
  document(): Document;
} {
  const app = new OpenAPIHono();
  return {
    openAPIRegistry: app.openAPIRegistry,
    document: () =>
      app.getOpenAPI31Document({
        openapi: "3.1.0",
        info: { title: "Tidemill", version: VERSION, description: DESCRIPTION },
        security: [{ bearer: [] }],
      }),
  };
}

type Route = Parameters<OpenAPIHono["openAPIRegistry"]["registerPath"]>[0];

function toRoute(endpoint: Endpoint): Route {
  const { method, tag, summary, description, act, params, query, body, headers } = endpoint;
  const answers = Object.entries(endpoint.answers).map(([status, note]) => [
    status,
    {
      description: note.description,
      ...(note.schema === undefined
        ? {}
        : { content: { [note.type ?? "application/json"]: { schema: note.schema } } }),
    },
  ]);
  const refusal =
    endpoint.errors === "codeq"
      ? { "application/json": { schema: codeqError } }
      : { "application/problem+json": { schema: problem } };
  return {
    method,
    path: endpoint.path.replace(/:(\w+)/g, "{$1}"),
    tags: [tag],
    summary,
    description: `${description === undefined ? "" : `${description}\n\n`}Needs \`${act}\`.`,
    request: {
      ...(params === undefined ? {} : { params }),
      ...(query === undefined ? {} : { query }),
      ...(headers === undefined ? {} : { headers }),
      ...(body === undefined
        ? {}
        : {
            body: {
              required: endpoint.isBodyOptional !== true,
              content: { "application/json": { schema: body } },
            },
          }),
    },
    responses: {
      ...Object.fromEntries(answers),
      default: { description: "A problem", content: refusal },
    },
  };
}
