import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Dashboard } from "../../../src/server/http/dashboard.ts";
import { StaticFiles } from "../../../src/server/http/static-files.ts";
import { openScene, type Reply, type Scene } from "./http-scene.ts";

const PAGE = "<!doctype html><title>Tidemill</title>";
const SCRIPT = "const tide = 1;".repeat(100);

let folder: string;
let scene: Scene;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidemill-dashboard-"));
  await mkdir(join(folder, "assets"));
  await writeFile(join(folder, "index.html"), PAGE);
  await writeFile(join(folder, "assets/main-abc.js"), SCRIPT);
  await writeFile(join(folder, "assets/main-abc.js.br"), brotliCompressSync(SCRIPT));
  await writeFile(join(folder, "assets/main-abc.js.gz"), gzipSync(SCRIPT));
  scene = await openScene({ context: { dashboard: new Dashboard(folder) } });
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const get = (path: string, headers: Record<string, string> = {}, method = "GET"): Promise<Reply> =>
  scene.call(method, path, { headers: { authorization: "", ...headers } });
const HTML = { accept: "text/html,*/*" };

describe("the dashboard", () => {
  it("is at / and at every place in it, and nowhere else", async () => {
    for (const path of ["/", "/tasks", "/tasks/4711", "/queues"]) {
      const { status, text, headers } = await get(path, HTML);
      expect([status, text], path).toEqual([200, PAGE]);
      expect(headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(headers.get("cache-control")).toBe("no-cache");
    }
    for (const path of ["/v1/nothing", "/v1", "/openapi.json/x", "/healthz/x", "/assets/gone.js"]) {
      const { status, body } = await get(path, HTML);
      expect([status, body["code"]], path).toEqual([404, "TM_NOT_FOUND"]);
    }
    expect((await get("/tasks", { accept: "application/json" })).status).toBe(404);
    expect((await get("/", HTML, "POST")).status).toBe(404);
    expect((await get("/healthz", HTML)).body).toEqual({ status: "ok" });
    expect((await get("/openapi.json", HTML)).body).toHaveProperty("openapi");
    expect((await get("/v1/me", HTML)).status).toBe(401);
  });

  it("may load what comes from here, and nothing inline", async () => {
    const policy = (await get("/")).headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
    expect((await get("/")).headers.get("x-frame-options")).toBe("DENY");
  });

  it("sends files compressed, once and for ever", async () => {
    const path = "/assets/main-abc.js";
    const br = await get(path, { "accept-encoding": "gzip, deflate, br" });
    expect(br.headers.get("content-encoding")).toBe("br");
    expect(br.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(br.headers.get("vary")).toBe("accept-encoding");
    const gz = await get(path, { "accept-encoding": "gzip, br;q=0" });
    expect(gz.headers.get("content-encoding")).toBe("gzip");
    const plain = await get(path);
    expect(plain.headers.get("content-encoding")).toBeNull();
    expect(plain.text).toBe(SCRIPT);
    const again = await get(path, { "if-none-match": plain.headers.get("etag") ?? "" });
    expect([again.status, again.text]).toEqual([304, ""]);
    const head = await get(path, {}, "HEAD");
    expect([head.status, head.text]).toEqual([200, ""]);
  });

  it("knows no path but those of its files", async () => {
    for (const path of [
      "/../package.json",
      "/assets/..%2f..%2fetc/passwd",
      "/assets//main-abc.js",
    ]) {
      expect((await get(path, { accept: "*/*" })).status, path).toBe(404);
    }
  });

  it("refuses to start with files of which nobody knows the type", async () => {
    const strange = await mkdtemp(join(tmpdir(), "tidemill-strange-"));
    await writeFile(join(strange, "notes.exe"), "x");
    expect(() => new StaticFiles(strange)).toThrow("nobody knows the type of /notes.exe");
    expect(Dashboard.find(strange)).toBeUndefined();
    await rm(strange, { recursive: true });
  });
});
