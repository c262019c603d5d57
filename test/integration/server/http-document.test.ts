import { beforeAll, expect, it } from "vitest";
import { openScene, type Scene } from "./http-scene.ts";

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema?: object;
}

interface Operation {
  readonly summary: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly Parameter[];
  readonly responses: Readonly<Record<string, { readonly description: string }>>;
  readonly security?: readonly object[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema: object }>> };
}

interface Document {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

let scene: Scene;
let document: Document;

beforeAll(async () => {
  scene = await openScene();
  document = (await scene.call("GET", "/openapi.json", { headers: { authorization: "" } }))
    .body as unknown as Document;
});

const operations = (): [path: string, method: string, one: Operation][] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]): [string, string, Operation] => [
      path,
      method,
      one,
    ]),
  );

it("is an OpenAPI document of version 3.1 in itself complete", () => {
  expect(document.openapi).toMatch(/^3\.1\.\d+$/);
  expect(document.info).toMatchObject({ title: "Tidemill" });
  for (const [path, method, one] of operations()) {
    const where = `${method} ${path}`;
    expect(["get", "post", "put", "delete"], where).toContain(method);
    expect(one.summary, where).not.toBe("");
    expect(Object.keys(one.responses).length, where).toBeGreaterThan(0);
    for (const [status, { description }] of Object.entries(one.responses)) {
      expect(status, where).toMatch(/^([1-5]\d\d|default)$/);
      expect(description, where).not.toBe("");
    }
    const named = Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => name);
    const inPath = (one.parameters ?? []).filter((parameter) => parameter.in === "path");
    expect(new Set(inPath.map(({ name }) => name)), where).toEqual(new Set(named));
    for (const parameter of one.parameters ?? []) {
      expect(parameter.schema, `${where} ${parameter.name}`).toBeDefined();
      if (parameter.in === "path") expect(parameter.required, where).toBe(true);
    }
    if (method === "get") expect(one.requestBody, where).toBeUndefined();
  }
  const text = JSON.stringify(document);
  for (const [, name] of text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)) {
    expect(document.components.schemas, name).toHaveProperty([name ?? ""]);
  }
  expect(text).not.toContain('"nullable"'); // Which 3.1 does not have.
});

it("lists what is served, and what it lists is served", async () => {
  const paths = operations().map(([path, method]) => `${method} ${path}`);
  expect(paths.length).toBeGreaterThan(50);
  expect(new Set(paths).size).toBe(paths.length);
  for (const place of [
    "post /v1/tasks",
    "post /v1/tasks/batch",
    "get /v1/tasks",
    "get /v1/tasks/{id}",
    "get /v1/tasks/{id}/result",
    "get /v1/tasks/{id}/why",
    "put /v1/queues/{name}/limits",
    "post /v1/dead-letters/redrive",
    "put /v1/schedules/{name}",
    "post /v1/consumers/{name}/quarantine/retry",
    "get /v1/workers",
    "get /v1/ring",
    "post /v1/streams/{type}/{id}/events",
    "post /v1/codeq/tasks",
    "get /healthz",
    "get /readyz",
  ]) {
    expect(paths).toContain(place);
  }
  // Without a desk nobody can claim.
  expect(paths.filter((path) => path.includes("claim"))).toEqual([]);
  for (const [path, method, one] of operations()) {
    const { status } = await scene.call(method.toUpperCase(), path.replace(/\{\w+\}/g, "1"), {
      headers: { authorization: "" },
    });
    const isOpen = one.security?.length === 0;
    expect(status, `${method} ${path}`).toBe(isOpen ? 200 : 401);
  }
});

it("refuses members that it does not describe, in every body", () => {
  const strict = operations().filter(([path]) => !path.startsWith("/v1/codeq/"));
  const bodies = strict.flatMap(([path, , one]) => {
    const schema = one.requestBody?.content["application/json"]?.schema;
    return schema === undefined ? [] : [[path, resolved(schema)] as const];
  });
  expect(bodies.length).toBeGreaterThan(10);
  for (const [path, schema] of bodies) {
    expect(schema, path).toMatchObject({ type: "object", additionalProperties: false });
  }
});

function resolved(schema: object): object {
  const ref: unknown = Reflect.get(schema, "$ref");
  if (typeof ref !== "string") return schema;
  return document.components.schemas[ref.split("/").at(-1) ?? ""] ?? {};
}

it("is there for people, as one page without scripts from anywhere", async () => {
  const { status, text, headers } = await scene.call("GET", "/docs");
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/html; charset=utf-8");
  expect(text).not.toMatch(/<script|<link|<img|<iframe|@import|url\(|https?:\/\/(?!example)/i);
  expect(headers.get("content-security-policy")).toMatch(/style-src 'sha256-[\w+/]+='/);
  for (const path of Object.keys(document.paths)) expect(text).toContain(`<code>${path}</code>`);
  expect(text).toContain('id="tm_not_found"');
});
