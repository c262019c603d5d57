import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";

/** One file, and what was made of it beforehand to send less. */
interface StaticFile {
  readonly type: string;
  readonly etag: string;
  readonly isImmutable: boolean;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly encoded: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
}

/** Another kind of file is a mistake of the build, and found when the server starts. */
const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
const ENCODINGS: Readonly<Record<string, string>> = { ".br": "br", ".gz": "gzip" };
const PREFERRED = ["br", "gzip"];
const BYTES_MAX = 16 * 1024 * 1024;
/** The build gives files here a name that changes with what they hold. */
const HASHED = /^\/assets\//;

/**
 * What lies in a folder when it is made, from memory: no path of a request ever becomes one of the
 * file system.
 */
export class StaticFiles {
  readonly #files: ReadonlyMap<string, StaticFile>;

  constructor(folder: string) {
    this.#files = readFiles(folder);
  }

  has(path: string): boolean {
    return this.#files.has(path);
  }

  /** Undefined when there is no such file. */
  answer(path: string, headers: Headers): Response | undefined {
    const file = this.#files.get(path);
    if (file === undefined) return undefined;
    const common = {
      etag: file.etag,
      vary: "accept-encoding",
      "cache-control": file.isImmutable ? "public, max-age=31536000, immutable" : "no-cache",
    };
    const known = headers.get("if-none-match")?.split(",") ?? [];
    if (known.some((tag) => tag.trim().replace(/^W\//, "") === file.etag)) {
      return new Response(null, { status: 304, headers: common });
    }
    const accepted = acceptedEncodings(headers.get("accept-encoding") ?? "");
    const encoding = PREFERRED.find((one) => accepted.has(one) && file.encoded.has(one));
    const bytes = encoding === undefined ? file.bytes : file.encoded.get(encoding);
    return new Response(bytes ?? file.bytes, {
      status: 200,
      headers: {
        ...common,
        "content-type": file.type,
        ...(encoding === undefined ? {} : { "content-encoding": encoding }),
      },
    });
  }
}

function acceptedEncodings(header: string): ReadonlySet<string> {
  const given = header.split(",").map((part) =>
    part
      .trim()
      .toLowerCase()
      .split(/\s*;\s*/),
  );
  const wanted = given.filter(([, quality]) => !/^q=0(\.0*)?$/.test(quality ?? ""));
  return new Set(wanted.map(([name = ""]) => name));
}

function readFiles(folder: string): Map<string, StaticFile> {
  const read = new Map<string, Uint8Array<ArrayBuffer>>();
  let total = 0;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = new Uint8Array(readFileSync(path));
    total += bytes.length;
    if (total > BYTES_MAX) throw new Error(`${folder} holds more than ${BYTES_MAX} bytes`);
    read.set(`/${relative(folder, path).split(sep).join("/")}`, bytes);
  }
  const files = new Map<string, StaticFile>();
  for (const [path, bytes] of read) {
    if (ENCODINGS[extname(path)] !== undefined) continue;
    files.set(path, toFile(path, bytes, read));
  }
  return files;
}

function toFile(
  path: string,
  bytes: Uint8Array<ArrayBuffer>,
  all: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
): StaticFile {
  const type = TYPES[extname(path)];
  if (type === undefined) throw new Error(`nobody knows the type of ${path}`);
  const encoded = Object.entries(ENCODINGS).flatMap(
    ([suffix, name]): [string, Uint8Array<ArrayBuffer>][] => {
      const found = all.get(path + suffix);
      return found === undefined ? [] : [[name, found]];
    },
  );
  return {
    type,
    etag: `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`,
    isImmutable: HASHED.test(path),
    bytes,
    encoded: new Map(encoded),
  };
}
