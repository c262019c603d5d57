import { expect, it } from "vitest";
import { checkHttpCall, resolveCall, resolveHttpSettings } from "./http-call.ts";
import { httpQueue } from "./http-queue.ts";

const URL_OK = "https://example.com/hook";

it("takes what can be called, with names of headers in lower case", () => {
  expect(
    checkHttpCall({
      targetUrl: URL_OK,
      method: "PUT",
      headers: { "X-Shop": "12", Authorization: "Bearer t" },
      expectedStatus: 202,
      endpoint: "partner",
    }),
  ).toEqual({
    targetUrl: URL_OK,
    method: "PUT",
    headers: { "x-shop": "12", authorization: "Bearer t" },
    expectedStatus: [202],
    endpoint: "partner",
  });
});

it.each([
  ["", /not empty/],
  ["example.com", /whole URL/],
  ["ftp://example.com/", /http or https/],
  ["javascript:alert(1)", /http or https/],
  ["https://user:pw@example.com/", /password/],
  ["https://user@example.com/", /password/],
  ["https://example.com/\r\nX-Evil: 1", /whole URL/],
  ["https://exam ple.com/", /whole URL/],
  ["http:\\\\127.0.0.1\\", /whole URL/],
  [`https://example.com/${"a".repeat(2_048)}`, /at most 2048 characters/],
])("refuses the target %j", (targetUrl, why) => {
  expect(() => checkHttpCall({ targetUrl })).toThrow(why);
});

it.each([
  "Host",
  "host",
  "Connection",
  "Content-Length",
  "Transfer-Encoding",
  "TE",
  "Trailer",
  "Upgrade",
  "Expect",
  "Keep-Alive",
  "Proxy-Authorization",
  "proxy-connection",
])("refuses the header %s, which belongs to the connection", (name) => {
  const call = { targetUrl: URL_OK, headers: { [name]: "x" } };
  expect(() => checkHttpCall(call)).toThrow(/belongs to the connection/);
});

it.each([
  "Idempotency-Key",
  "traceparent",
  "Tracestate",
  "webhook-id",
  "Webhook-Signature",
  "Tidemill-Task-Id",
])("refuses the header %s, which is ours", (name) => {
  const call = { targetUrl: URL_OK, headers: { [name]: "x" } };
  expect(() => checkHttpCall(call)).toThrow(/receivers rely on it/);
});

it.each<[string, unknown]>([
  ["is no name", { headers: { "a b": "x" } }],
  ["is no name", { headers: { "": "x" } }],
  ["in one line", { headers: { a: "x\r\nEvil: 1" } }],
  ["in one line", { headers: { a: 12 } }],
  ["twice", { headers: { a: "1", A: "2" } }],
  [
    "at most 32",
    { headers: Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`h${n}`, ""])) },
  ],
  ["at most 8192 bytes", { headers: { a: "x".repeat(8_192) } }],
  ["http.method", { method: "TRACE" }],
  ["200 to 599", { expectedStatus: 101 }],
  ["200 to 599", { expectedStatus: [] }],
  ["must not have 302: a redirect", { expectedStatus: [200, 302] }],
  ["must not have 308: a redirect", { expectedStatus: 308 }],
  ["200 to 599", { expectedStatus: ["200"] }],
  ["endpoint", { endpoint: "no spaces" }],
  ["target", { target: URL_OK }],
  ["must be an object", null],
  ["must be an object", [URL_OK]],
])("refuses with %j", (why, call) => {
  expect(() => checkHttpCall(call)).toThrow(why);
});

it("lets a task say what its queue does not, and keeps the rest", () => {
  const settings = resolveHttpSettings("calls", {
    targetUrl: URL_OK,
    headers: { a: "queue", b: "queue" },
    expectedStatus: 204,
  });
  expect(resolveCall(settings, { headers: { b: "task" }, method: "GET" })).toEqual({
    targetUrl: URL_OK,
    method: "GET",
    headers: { a: "queue", b: "task" },
    expectedStatus: [204],
    endpoint: "default",
  });
  expect(() => resolveCall(resolveHttpSettings("calls", {}), undefined)).toThrow(/http.targetUrl/);
});

it("sends the headers of a queue to the origin of the queue's own target only", () => {
  const settings = resolveHttpSettings("calls", {
    targetUrl: URL_OK,
    headers: { authorization: "Bearer queue", a: "queue" },
  });
  const headersFor = (targetUrl: string) =>
    resolveCall(settings, { targetUrl, headers: { b: "task" } }).headers;
  expect(headersFor("https://EXAMPLE.com:443/other?x=1")).toEqual({
    authorization: "Bearer queue",
    a: "queue",
    b: "task",
  });
  for (const other of [
    "https://evil.example.net/hook",
    "http://example.com/hook",
    "https://example.com:8443/hook",
    "https://example.com.evil.net/hook",
    "https://sub.example.com/hook",
  ]) {
    expect(headersFor(other)).toEqual({ b: "task" });
  }
});

it("shares no header that looks like a secret between targets that tasks name", () => {
  for (const name of ["Authorization", "Cookie", "X-Api-Key", "x-auth-token", "x-password"]) {
    const define = () => resolveHttpSettings("calls", { headers: { [name]: "s" } });
    expect(define).toThrow(`${name.toLowerCase()} without http.targetUrl`);
  }
  const settings = resolveHttpSettings("calls", { headers: { "X-Shop": "12" } });
  const own = { targetUrl: URL_OK, headers: { authorization: "Bearer task" } };
  expect(resolveCall(settings, own).headers).toEqual({
    "x-shop": "12",
    authorization: "Bearer task",
  });
  // Somebody stored it with SQL, or before it was refused.
  const stored = { headers: { "x-shop": "12", authorization: "Bearer queue" } };
  expect(resolveCall(stored, { targetUrl: URL_OK }).headers).toEqual({ "x-shop": "12" });
});

it("is refused where it is defined, by the name of its queue", () => {
  const http = { targetUrl: "ftp://example.com/" };
  expect(() => httpQueue("calls", { http })).toThrow(/queue "calls": http.targetUrl/);
  expect(() => httpQueue("calls", { http: { resultBytesMax: 2 ** 30 } })).toThrow(/resultBytesMax/);
  expect(httpQueue("calls").settings).toMatchObject({ timeoutSeconds: 30, http: {} });
});
