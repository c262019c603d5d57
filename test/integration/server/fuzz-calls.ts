import fc from "fast-check";
import { MUST_REFUSE } from "../../support/egress-targets.ts";
import { type JsonSchema, type SchemaContext, valuesOf } from "../../support/schema-values.ts";
import { ACME, ACME_ADMIN, ACME_WORKER, READER } from "./scene.ts";

/*
 * Calls of everything that a server describes, made from what it says of them: such as it should
 * take, and such in which one thing is wrong.
 */

interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required?: boolean;
  readonly schema: JsonSchema;
}

interface Operation {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: {
    readonly required?: boolean;
    readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>>;
  };
}

export interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
}

/** One request. In its path and text, `«task:3»` stands for the fourth of the tasks at hand. */
export interface FuzzCall {
  /** What of the description it calls. */
  readonly place: string;
  readonly method: string;
  readonly path: string;
  readonly text: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
}

/** What a call may be about, by its kind; the test fills in what there is. */
export type Things = Readonly<Record<ThingKind, readonly string[]>>;
export const THING_KINDS = [
  "task",
  "held",
  "token",
  "ended",
  "dead",
  "delivery",
  "subscription",
  "key",
  "theirTask",
  "theirDelivery",
  "theirSubscription",
] as const;
export type ThingKind = (typeof THING_KINDS)[number];

export function filled(text: string, things: Things): string {
  return text.replace(/«(\w+):(\d+)»/g, (_, kind: ThingKind, index: string) => {
    const all = things[kind];
    return all[Number(index) % Math.max(1, all.length)] ?? "1";
  });
}

const INDEX = fc.nat(30);
const thing = (...kinds: ThingKind[]): fc.Arbitrary<string> =>
  fc.tuple(fc.constantFrom(...kinds), INDEX).map(([kind, index]) => `«${kind}:${index}»`);
const anyTask = thing("task", "held", "ended", "dead", "theirTask", "theirTask");
const queue = fc.constantFrom("mails", "mails", "mails", "letters", "calls", "nobody's");
const list = <T>(values: fc.Arbitrary<T>): fc.Arbitrary<T[]> =>
  fc.array(values, { minLength: 1, maxLength: 3 });

/** What follows such a word in a path, in most calls. */
const BY_SEGMENT: Readonly<Record<string, fc.Arbitrary<string>>> = {
  tasks: anyTask,
  "dead-letters": thing("dead", "theirTask"),
  queues: queue,
  schedules: fc.constantFrom("nightly", "hourly"),
  webhooks: fc.constantFrom("hook", "common", "default"),
  "webhook-deliveries": thing("delivery", "theirDelivery"),
  subscriptions: thing("subscription", "theirSubscription"),
  consumers: fc.constantFrom("audit_v1"),
  tenants: fc.constantFrom("initech"),
  keys: thing("key"),
  topics: fc.constantFrom("topic-1", "topic-2"),
};

/** Where a server must not go, where it may not go here, and what is no address at all. */
const addresses = (port: number): fc.Arbitrary<string> =>
  fc.oneof(
    fc
      .constantFrom(
        "hooks.example.com",
        "a.example.org",
        "127.0.0.1",
        "localhost",
        "[::1]",
        "2130706433",
      )
      .map((host) => `https://${host}:${port}/hook`),
    fc.constantFrom(...MUST_REFUSE.map(([url]) => url)),
  );

function membersOf(port: number): SchemaContext["members"] {
  const url = addresses(port);
  return {
    queue,
    queues: list(queue),
    command: queue,
    commands: list(queue),
    url,
    callbackUrl: url,
    targetUrl: url,
    webhook: fc.oneof(url, fc.constantFrom("hook", "default", "nobody")),
    cron: fc.constantFrom("@daily", "*/5 * * * *", "0 3 31 2 *", "* * * * * *"),
    timeZone: fc.constantFrom("UTC", "Europe/Berlin", "Mars/Olympus"),
    waitSeconds: fc.constant(0), // Nobody waits for a fuzzer.
    secret: fc.constantFrom(`whsec_${Buffer.alloc(32, 7).toString("base64")}`, "short"),
    ids: fc.oneof(list(thing("dead", "theirTask")), list(thing("delivery", "theirDelivery"))),
    taskId: thing("held", "task", "theirTask"),
    token: thing("token"),
    status: fc.constantFrom("COMPLETED", "FAILED", "DONE"),
    mode: fc.constantFrom("fanout", "hash"),
    deliveryMode: fc.constantFrom("fanout", "hash", ""),
    deletionPolicy: fc.constantFrom("Delete", "Delete", "Keep"),
    dataBase64: fc.constantFrom("/wA=", "", "@"),
    to: fc.constantFrom("0", "1"),
    // A worker does not get its own keys here, and a claim of many would wait for them.
    keySpace: fc.constantFrom("mails", "letters"),
  };
}

const NASTY = fc.constantFrom<unknown>(
  null,
  true,
  -1,
  1e308,
  0.5,
  Number.MAX_SAFE_INTEGER,
  "",
  "\u0000",
  "\ud800",
  "a\u001eb",
  "x".repeat(5_000),
  "__proto__",
  "'; DROP TABLE tasks; --",
  "http://169.254.169.254/latest/meta-data/",
  "2026-01-31T09:00:00Z",
  "99999999999999999999",
  [],
  {},
  [[]],
  { $ne: null },
);
const NASTY_PART = fc.oneof(
  fc.constantFrom("1", "0", "letters", "%00", "%ff", "..%2f", "-1", "a%2Fb", "%F0%9F%92%A9"),
  fc.webPath().map((path) => encodeURI(path) || "x"),
);
/** What is done to a task by whoever claimed it. */
const ACT = /\/tasks\/\{id\}\/(complete|fail|nack|abandon|heartbeat|result)$/;
const METHODS = ["get", "post", "put", "delete"] as const;
const HEADERS = fc.constantFrom<Readonly<Record<string, string>>>(
  { traceparent: "00-zz-1-01" },
  { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate: "a=b" },
  { "x-request-id": "a b" },
  { "idempotency-key": "" },
  { "idempotency-key": "k".repeat(2_000) },
  { "last-event-id": "1.2.3" },
  { "x-wait-for": "audit_v1" },
  { "x-wait-for": "%ff@1" },
  { "content-type": "text/plain" },
);

/** What is wrong with a call. */
interface Fault {
  readonly kind:
    | "member"
    | "absent"
    | "more"
    | "body"
    | "cut"
    | "part"
    | "query"
    | "method"
    | "header";
  readonly at: number;
  readonly value: unknown;
  readonly part: string;
  readonly headers: Readonly<Record<string, string>>;
}

const faults = fc.record<Fault>({
  kind: fc.constantFrom(
    "member",
    "member",
    "member",
    "absent",
    "more",
    "body",
    "cut",
    "part",
    "query",
    "method",
    "header",
  ),
  at: fc.nat(20),
  value: fc.oneof(NASTY, fc.jsonValue({ maxDepth: 2 }), fc.string({ unit: "binary" })),
  part: NASTY_PART,
  headers: HEADERS,
});

const TOKENS = fc.oneof(
  { weight: 8, arbitrary: fc.constant(ACME_ADMIN) },
  { weight: 2, arbitrary: fc.constantFrom(ACME, ACME_WORKER, READER) },
  { weight: 1, arbitrary: fc.constantFrom("", "nobody") },
);

type Entries = readonly (readonly [name: string, value: unknown])[];

interface Parts {
  readonly path: string;
  readonly query: Entries;
  /** Undefined: none is sent. */
  readonly body: Entries | undefined;
}

interface Place {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

export const placesOf = ({ paths }: OpenApi): Place[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

/** Calls of one place, by anybody. Addresses in them have the port on which somebody listens. */
export function callsOf(
  place: Place,
  { components }: OpenApi,
  port: number,
): fc.Arbitrary<FuzzCall> {
  const context = { schemas: components.schemas, members: membersOf(port) };
  const fault = fc.oneof(
    { weight: 2, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: faults },
  );
  return fc.tuple(partsOf(place, context), fault, TOKENS).map(([parts, wrong, token]) => {
    const { path, query, body } = wrong === undefined ? parts : broken(parts, wrong);
    const search = query.map(([name, value]) => `${encodeURIComponent(name)}=${part(value)}`);
    const text = body === undefined ? undefined : written(body, wrong);
    const method = wrong?.kind === "method" ? METHODS[wrong.at % METHODS.length] : place.method;
    return {
      place: `${place.method} ${place.path}`,
      method: (method ?? "get").toUpperCase(),
      path: search.length === 0 ? path : `${path}?${search.join("&")}`,
      text,
      headers: {
        authorization: `Bearer ${token}`,
        ...(text === undefined ? {} : { "content-type": "application/json" }),
        ...(wrong?.kind === "header" ? wrong.headers : {}),
      },
    };
  });
}

/** In a query or a path. A half of a character cannot be written there. */
const part = (value: unknown): string =>
  encodeURIComponent(wellFormed(typeof value === "string" ? value : JSON.stringify(value)));

const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, "\ufffd");

function partsOf({ method, path, operation }: Place, context: SchemaContext): fc.Arbitrary<Parts> {
  const { parameters = [], requestBody } = operation;
  const query = parameters.filter((one) => one.in === "query").map((one) => entryOf(one, context));
  const names = parameters.filter((one) => one.in === "path").map(({ name }) => name);
  const values = names.map((name) => partOf(path, name, parameters, context));
  // What a queue is concerns all tenants: one of calls would run what globex has in it.
  if (method === "put" && path === "/v1/queues/{name}")
    values[0] = fc.constantFrom("calls", "more");
  const schema = requestBody?.content["application/json"]?.schema;
  const bodies = schema === undefined ? fc.constant(undefined) : valuesOf(schema, context);
  const isNeeded = requestBody?.required === true;
  return fc
    .record({
      index: INDEX,
      query: fc.tuple(...query),
      values: fc.tuple(...values),
      body: isNeeded ? bodies : fc.option(bodies, { nil: undefined, freq: 3 }),
    })
    .map((given) => {
      const body = given.body as Readonly<Record<string, unknown>> | undefined;
      // Whoever acts on a claimed task brings the token of that very claim.
      const isAct = method === "post" && ACT.test(path) && given.index % 4 !== 0;
      const own = isAct && body?.["token"] !== undefined ? { token: `«token:${given.index}»` } : {};
      const parts = isAct ? [`«held:${given.index}»`] : given.values;
      return {
        path: names.reduce(
          (text, name, at) => text.replace(`{${name}}`, () => parts[at] ?? "x"),
          path,
        ),
        query: given.query.flatMap((entry) => (entry === undefined ? [] : [entry])),
        body: body === undefined ? undefined : Object.entries({ ...body, ...own }),
      };
    });
}

function entryOf(
  { name, schema, required }: Parameter,
  context: SchemaContext,
): fc.Arbitrary<readonly [string, unknown] | undefined> {
  const entry = (context.members[name] ?? valuesOf(schema, context)).map(
    (value) => [name, value] as const,
  );
  return required === true ? entry : fc.option(entry, { nil: undefined, freq: 2 });
}

function partOf(
  path: string,
  name: string,
  parameters: readonly Parameter[],
  context: SchemaContext,
): fc.Arbitrary<string> {
  const [, segment = ""] = new RegExp(`/([^/]+)/\\{${name}\\}`).exec(path) ?? [];
  const schema = parameters.find((one) => one.name === name)?.schema ?? {};
  const any = valuesOf(schema, context).map((value) => part(value) || "x");
  const known = BY_SEGMENT[segment];
  if (known === undefined) return any;
  return fc.oneof({ weight: 6, arbitrary: known }, { weight: 1, arbitrary: any });
}

const KNOWN_PART = /«[^»]*»|(?<=\/)(mails|letters|calls|nightly|hook|audit_v1|topic-1)(?=\/|$)/;

type Keys = readonly string[];

/** Where there is something in a value, at any depth. */
function placesIn(value: unknown, at: Keys = []): Keys[] {
  if (typeof value !== "object" || value === null) return [at];
  const inside = Object.entries(value).flatMap(([key, one]) => placesIn(one, [...at, key]));
  return at.length === 0 ? inside : [at, ...inside];
}

function replaced(value: unknown, [key, ...rest]: Keys, by: unknown): unknown {
  if (key === undefined) return by;
  const inside = Object.entries(value ?? {}).map(([name, one]): [string, unknown] => [
    name,
    name === key ? replaced(one, rest, by) : one,
  ]);
  return Array.isArray(value) ? inside.map(([, one]) => one) : Object.fromEntries(inside);
}

/** With one member that is something else. */
function withAnother(body: Entries, at: number, value: unknown): Entries {
  const given = Object.fromEntries(body);
  const places = placesIn(given);
  const place = places[at % Math.max(1, places.length)] ?? ["queue"];
  return Object.entries(replaced(given, place, value) as object);
}

function broken(parts: Parts, { kind, at, value, part: text }: Fault): Parts {
  const { path, query, body = [] } = parts;
  const [name] = body[at % Math.max(1, body.length)] ?? ["queue"];
  switch (kind) {
    case "member":
      return { ...parts, body: withAnother(body, at, value) };
    case "absent":
      return { ...parts, body: body.filter(([one]) => one !== name) };
    case "more":
      return { ...parts, body: [...body, [at % 2 === 0 ? "__proto__" : "tenant", value]] };
    case "part":
      return { ...parts, path: path.replace(KNOWN_PART, () => text) };
    case "query": {
      const [first = "limit"] = query[0] ?? [];
      return { ...parts, query: [...query, [at % 2 === 0 ? first : "tenant", value]] };
    }
    default:
      return parts;
  }
}

/** By hand: an object would have no member twice, and none that is called `__proto__`. */
function written(body: Entries, fault: Fault | undefined): string {
  if (fault?.kind === "body") return JSON.stringify(fault.value) ?? "null";
  const members = body.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  const text = `{${members.join()}}`;
  return fault?.kind === "cut" ? text.slice(0, -1) : text;
}
