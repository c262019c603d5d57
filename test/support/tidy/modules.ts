import { posix } from "node:path";
import { exists, placeOf, SOURCES, textOf } from "./repository.ts";
import { argumentsOf, isNode, type Node, nodesOf } from "./syntax.ts";

export interface Import {
  readonly specifier: string;
  /** The file in the repository, or undefined for a package. */
  readonly to: string | undefined;
  readonly place: string;
}

const imports = new Map<string, readonly Import[]>();

/** Static, dynamic and type imports, re-exports, and files that a `new URL` names. */
export function importsOf(file: string): readonly Import[] {
  let found = imports.get(file);
  if (found === undefined) {
    found = nodesOf(file).flatMap((node) => {
      const specifier = specifierOf(node);
      if (specifier === undefined) return [];
      const isRelative = specifier.startsWith(".");
      const to = isRelative ? posix.join(posix.dirname(file), specifier) : undefined;
      if (node.type === "NewExpression" && !to?.endsWith(".ts")) return [];
      return [{ specifier, to, place: placeOf(file, node.start) }];
    });
    imports.set(file, found);
  }
  return found;
}

function specifierOf(node: Node): string | undefined {
  const isUrl = node.type === "NewExpression" && (node["callee"] as Node)["name"] === "URL";
  const source = isUrl ? argumentsOf(node)[0] : node["source"];
  const value: unknown = isNode(source) ? source["value"] : undefined;
  return typeof value === "string" ? value : undefined;
}

/** The first folder below src, or "" for files directly in it. */
export function folderOf(file: string): string {
  const [, folder = "", ...rest] = file.split("/");
  return rest.length === 0 ? "" : folder;
}

/** Lowest first. A folder may import itself and the layers below it. */
const LAYERS: readonly (readonly string[])[] = [
  ["base"],
  ["db"],
  ["cluster"],
  ["events", "tasks"],
  ["consumers", "routes", "delivery", "schedules"],
  ["worker"],
  ["server", "kafka"],
];

const below = (folder: string): string[] =>
  LAYERS.slice(
    0,
    LAYERS.findIndex((layer) => layer.includes(folder)),
  ).flat();

const ALL = LAYERS.flat();
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(ALL.map((folder) => [folder, below(folder)])),
  server: ["wire", ...below("server")],
  wire: [],
  client: ["base", "wire"],
  adapters: ["tasks", ...below("tasks")],
  embedded: ["base"],
  checker: [],
  cli: [...ALL, "checker", "client", "adapters", "embedded"],
  testing: [...ALL, "wire", "client", "adapters", "embedded", "cli", ""],
  "": [...ALL, "client", "adapters"],
};

/**
 * What programs without a database share with the engine, file by file: definitions of queues, what
 * handlers get and say, and nothing that acts.
 */
const SHARED_WITH_CLIENT: readonly string[] = [
  ...[
    "context",
    "handler-context",
    "http-call",
    "http-queue",
    "limits",
    "new-task",
    "outcome",
    "priority",
    "queue",
    "schema",
    "task",
    "webhook-name",
  ].map((name) => `src/tasks/${name}.ts`),
  "src/db/executor.ts", // An interface: what `complete(tx)` takes.
  "src/cluster/ring.ts", // Arithmetic: a lane has the number of a bucket in it.
];
const PACKAGES_OF_CLIENT = /^(node:|@grpc\/grpc-js$|@bufbuild\/protobuf\b)/;

/** Whatever a client reaches, also for types, that it would need a database for. */
export function clientFaults(): string[] {
  const reached = reachableFrom(["src/client/index.ts"]);
  return [...reached].flatMap((file) => {
    const isOurs =
      ["client", "base", "wire"].includes(folderOf(file)) || SHARED_WITH_CLIENT.includes(file);
    const others = importsOf(file).filter(
      ({ to, specifier }) => to === undefined && !PACKAGES_OF_CLIENT.test(specifier),
    );
    return [
      ...(isOurs ? [] : [`${file}:1: reached from src/client`]),
      ...others.map(({ place, specifier }) => `${place}: ${specifier}`),
    ];
  });
}

/** Imports that point up, sideways, or into a folder that nobody may import. */
export function layeringFaults(): string[] {
  return SOURCES.flatMap((file) => {
    const folder = folderOf(file);
    const allowed = MAY_IMPORT[folder];
    if (allowed === undefined) return [`${file}:1: folder ${folder} has no layer`];
    return importsOf(file).flatMap(({ to, place }) => {
      if (to?.startsWith("src/") !== true) return [];
      const target = folderOf(to);
      if (target === folder || allowed.includes(target)) return [];
      if (folder === "client" && SHARED_WITH_CLIENT.includes(to)) return [];
      return [`${place}: ${folder || "index.ts"} must not import ${target || "index.ts"} (${to})`];
    });
  });
}

/** Imports of files that do not exist, or that leave src. */
export function danglingImports(): string[] {
  return SOURCES.flatMap((file) =>
    importsOf(file).flatMap(({ to, place }) =>
      to === undefined || (to.startsWith("src/") && exists(to)) ? [] : [`${place}: ${to}`],
    ),
  );
}

/** One line per group of files that reach each other. */
export function importCycles(): string[] {
  const cycles = new Set<string>();
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    const start = path.indexOf(file);
    if (start >= 0) {
      const loop = path.slice(start);
      const first = loop.indexOf(loop.toSorted()[0] ?? file);
      const turned = [...loop.slice(first), ...loop.slice(0, first)];
      cycles.add(`${turned[0]}:1: ${[...turned, turned[0]].join(" → ")}`);
      return;
    }
    if (done.has(file) || !SOURCES.includes(file)) return;
    for (const { to } of importsOf(file)) if (to !== undefined) visit(to, [...path, file]);
    done.add(file);
  };
  for (const file of SOURCES) visit(file, []);
  return [...cycles];
}

export interface EntryPoint {
  /** As users write it, such as "./testing", or "bin". */
  readonly name: string;
  readonly file: string;
}

interface Manifest {
  readonly bin: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}

/** The sources of what package.json lets others import or run. */
export function entryPoints(): EntryPoint[] {
  const manifest = JSON.parse(textOf("package.json")) as Manifest;
  const toSource = (path: string): string =>
    path.replace(/^\.\/dist\//, "src/").replace(/\.js$/, ".ts");
  const commands = Object.values(manifest.bin).map((path) => ({ name: "bin", path }));
  const modules = Object.entries(manifest.exports).flatMap(([name, target]) =>
    typeof target === "string" ? [] : [{ name, path: target.default }],
  );
  return [...commands, ...modules].flatMap(({ name, path }) =>
    filesOf(toSource(path)).map((file) => ({ name, file })),
  );
}

/** A pattern such as "src/adapters/*.ts" stands for every source that it matches. */
function filesOf(pattern: string): string[] {
  const [before = "", after] = pattern.split("*");
  if (after === undefined) return [pattern];
  const found = SOURCES.filter((file) => file.startsWith(before) && file.endsWith(after));
  return found.length > 0 ? found : [pattern];
}

export function reachableFrom(roots: readonly string[]): Set<string> {
  const reached = new Set<string>();
  const queue = [...roots];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (reached.has(file) || !SOURCES.includes(file)) continue;
    reached.add(file);
    for (const { to } of importsOf(file)) if (to !== undefined) queue.push(to);
  }
  return reached;
}
