import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { brokenLinks, unlistedPages } from "./support/tidy/markdown.ts";
import {
  clientFaults,
  danglingImports,
  entryPoints,
  importCycles,
  importsOf,
  layeringFaults,
  reachableFrom,
} from "./support/tidy/modules.ts";
import {
  lockedPackages,
  lockedPath,
  manifest,
  NEEDLESS_SCRIPTS,
  OPTIONAL_PEERS,
  RUNTIME_PACKAGES,
  runtimeClosure,
} from "./support/tidy/packages.ts";
import {
  exists,
  FILES,
  matches,
  placeOf,
  ROOT,
  SOURCES,
  TESTS,
  TEXT_FILES,
  textIfAny,
  textOf,
} from "./support/tidy/repository.ts";
import {
  argumentsOf,
  codeOf,
  findNodes,
  isCallOf,
  isMember,
  isNode,
  isReExport,
  literalText,
  nameOf,
  nodesOf,
  propertiesOf,
  textLiterals,
  topLevelOf,
} from "./support/tidy/syntax.ts";

/** Fails with one line per place. */
function refuse(faults: readonly string[], hint: string): void {
  if (faults.length > 0) expect.fail(`${hint}:\n  ${faults.join("\n  ")}`);
}

const run = promisify(execFile);
const TYPESCRIPT = FILES.filter((file) =>
  /^(src|test|bench|chaos|mutants|examples|dashboard)\/.*\.tsx?$/.test(file),
);
const GENERATED = /\/(generated|gen)\//;
const written = (files: readonly string[]): string[] =>
  files.filter((file) => !GENERATED.test(file));
const longerThan = (files: readonly string[], lines: number): string[] =>
  written(files).flatMap((file) => {
    const count = textOf(file).split("\n").length - 1;
    return count > lines ? [`${file}:${lines + 1}: has ${count} lines`] : [];
  });

describe("structure", () => {
  it("imports point down the layers only", () => {
    refuse(layeringFaults(), "these imports break the layering of ARCHITECTURE.md");
  });

  it("nothing of a client needs a database, not even its types", () => {
    expect(reachableFrom(["src/client/index.ts"])).toContain("src/tasks/queue.ts");
    refuse(clientFaults(), "a program without a database must be able to import the client");
  });

  it("imports of sources stay in src and name files that exist", () => {
    refuse(danglingImports(), "these imports lead nowhere, or out of src");
  });

  it("no file imports itself through others, not even for types", () => {
    refuse(importCycles(), "these files import each other in a circle");
  });

  it("every entry point of package.json has a source", () => {
    const missing = entryPoints().filter(({ file }) => !exists(file));
    refuse(
      missing.map(({ name, file }) => `package.json:1: "${name}" needs ${file}`),
      "these entry points have no source",
    );
  });

  it("entry points only re-export", () => {
    // Each file of a pattern is a small module of its own, without an inside to re-export.
    const isModule = (name: string): boolean => name !== "bin" && !name.includes("*");
    const modules = entryPoints().filter(({ name, file }) => isModule(name) && exists(file));
    const others = modules.flatMap(({ file }) =>
      topLevelOf(file)
        .filter((node) => node.type !== "ExportNamedDeclaration" || !isNode(node["source"]))
        .map((node) => `${placeOf(file, node.start)}: ${node.type}`),
    );
    refuse(others, "an entry point holds nothing but named re-exports");
  });

  it("there are no barrels inside", () => {
    const entries = new Set(entryPoints().map(({ file }) => file));
    const inside = SOURCES.filter((file) => !entries.has(file));
    const named = inside.filter((file) => file.endsWith("/index.ts"));
    const hollow = inside.filter((file) => {
      const body = topLevelOf(file);
      return body.length > 0 && body.every((node) => isReExport(node));
    });
    refuse(
      [...named, ...hollow].map((file) => `${file}:1: only entry points re-export`),
      "import from the file that defines it",
    );
  });

  it("exports have names: no default exports, no export *", () => {
    const types = ["ExportDefaultDeclaration", "ExportAllDeclaration"];
    refuse(
      findNodes(SOURCES, (node) => types.includes(node.type)),
      "name what is exported",
    );
  });

  it("every source is reached from an entry point", () => {
    const roots = [...entryPoints().map(({ file }) => file), "src/embedded/launcher.ts"];
    const reached = reachableFrom(roots);
    const dead = written(SOURCES).filter((file) => !reached.has(file));
    refuse(
      dead.map((file) => `${file}:1: nobody imports it`),
      "these files are dead; delete them, or use them",
    );
  });

  /** Addresses of the modules that an import loads. */
  const loadedBy = async (entry: string): Promise<string[]> => {
    const script = `
      import { Session } from "node:inspector";
      const session = new Session();
      session.connect();
      const urls = [];
      session.on("Debugger.scriptParsed", ({ params }) => urls.push(params.url));
      session.post("Debugger.enable");
      await import("./${entry}");
      process.stdout.write(JSON.stringify(urls));`;
    const { stdout } = await run(
      process.execPath,
      ["--import", "tsx", "--input-type=module", "-e", script],
      { cwd: ROOT, maxBuffer: 64 * 1024 * 1024 },
    );
    const loaded = JSON.parse(stdout) as string[];
    expect(loaded.some((url) => url.endsWith(`/${entry}`))).toBe(true);
    return loaded;
  };

  it("importing the library loads neither HTTP, gRPC nor the command line", async () => {
    const loaded = await loadedBy("src/index.ts");
    expect(loaded.some((url) => url.includes("/node_modules/pg/"))).toBe(true);
    const heavy =
      /\/node_modules\/(hono|@hono|@grpc|@bufbuild|grpc-[a-z-]+|commander|@clack|zod|jose)\//;
    refuse(
      loaded.filter((url) => heavy.test(url)),
      'import "tidemill" must stay light; load these where they are used',
    );
  });

  it("importing the part for Kafka loads no client of it", async () => {
    const loaded = await loadedBy("src/kafka/index.ts");
    refuse(
      loaded.filter((url) => /\/node_modules\/(@platformatic|kafkajs)\//.test(url)),
      "who uses one of them must not need the other",
    );
  });

  it("importing the client loads no driver of the database", async () => {
    const loaded = await loadedBy("src/client/index.ts");
    expect(loaded.some((url) => url.includes("/node_modules/@grpc/grpc-js/"))).toBe(true);
    const heavy = /\/node_modules\/(pg|pg-[a-z-]+|hono|@hono|commander|@clack|zod|jose|pino)\//;
    refuse(
      loaded.filter((url) => heavy.test(url)),
      'import "tidemill/client" must work where these are not wanted',
    );
  });
});

describe("size", () => {
  it("a source has at most 400 lines", () => {
    refuse(longerThan(SOURCES, 400), "split these files by responsibility");
  });

  it("no TypeScript file has more than 600 lines", () => {
    refuse(longerThan(TYPESCRIPT, 600), "split these files by behaviour");
  });

  it("a line has at most 100 columns", () => {
    const long = written(TYPESCRIPT).flatMap((file) =>
      textOf(file)
        .split("\n")
        .flatMap((line, index) => {
          const columns = Array.from(line).length;
          return columns > 100 ? [`${file}:${index + 1}: ${columns} columns`] : [];
        }),
    );
    refuse(long, "break these lines");
  });
});

describe("language", () => {
  const hand = written(SOURCES);

  it("any is not used", () => {
    refuse(
      findNodes(hand, (node) => node.type === "TSAnyKeyword"),
      "use unknown, or say the type",
    );
  });

  it("values are not asserted to be there with !", () => {
    const isAssertion = (type: string): boolean => type === "TSNonNullExpression";
    refuse(
      findNodes(hand, (node) => isAssertion(node.type) || node["definite"] === true),
      "check instead of asserting",
    );
  });

  it("types are not forced through unknown", () => {
    const faults = findNodes(hand, (node) => {
      if (node.type !== "TSAsExpression") return false;
      const inner = node["expression"];
      if (!isNode(inner) || inner.type !== "TSAsExpression") return false;
      return (inner["typeAnnotation"] as { type: string }).type === "TSUnknownKeyword";
    });
    refuse(faults, "as unknown as hides a wrong type");
  });

  it("there are no enums and no namespaces", () => {
    const types = ["TSEnumDeclaration", "TSModuleDeclaration"];
    refuse(
      findNodes(hand, (node) => types.includes(node.type)),
      "use unions of words and modules",
    );
  });

  it("sources do not write to the console", () => {
    const faults = findNodes(
      hand,
      (node) => node.type === "MemberExpression" && nameOf(node["object"]) === "console",
    );
    refuse(faults, "log through the given logger; the command line writes to its own output");
  });

  it("time and chance come from base", () => {
    const exempt = /^src\/(base|embedded|cli)\//;
    const ambient = ["setTimeout", "setInterval", "randomUUID"];
    const faults = findNodes(
      hand.filter((file) => !exempt.test(file)),
      (node) =>
        isMember(node, "Date", "now") ||
        isMember(node, "Math", "random") ||
        isMember(node, "performance", "now") ||
        (node.type === "NewExpression" &&
          nameOf(node["callee"]) === "Date" &&
          argumentsOf(node).length === 0) ||
        (node.type === "ImportSpecifier" && ambient.includes(nameOf(node["imported"]) ?? "")) ||
        ambient.some((name) => isCallOf(node, name)),
    );
    refuse(faults, "take the clock, or a function of src/base, so that tests can rule it");
  });

  it("nothing but the egress guard calls out", () => {
    // Of these, nothing else is used than what listens, or calls nobody.
    const modules = /^(node:)?(http|https|http2|net|tls|dgram)$/;
    const harmless = ["constants", "createSecureContext", "isIP", "isIPv4", "isIPv6"];
    const listeners = [
      "src/cli/demo/courier.ts",
      "src/cli/demo/dev-server.ts",
      "src/embedded/server-process.ts",
      "src/server/http/listener.ts",
    ];
    // Calls the server that its user names.
    const clients = ["src/client/rest/http-call.ts"];
    const isFine = (specifier: unknown, file: string): boolean => {
      if (!isNode(specifier) || specifier["importKind"] === "type") return true;
      const name = nameOf(specifier["imported"]) ?? "";
      return harmless.includes(name) || (name === "createServer" && listeners.includes(file));
    };
    const faults = findNodes(
      hand.filter((file) => !file.startsWith("src/delivery/egress/") && !clients.includes(file)),
      (node, file) => {
        const isFetch = node.type === "CallExpression" && nameOf(node["callee"]) === "fetch";
        if (isFetch && file !== "src/server/http/local-only.ts") return true; // A handler's own.
        if (isMember(node, "globalThis", "fetch")) return true;
        const source = node["source"];
        if (!isNode(source) || !modules.test(literalText(source) ?? "")) return false;
        if (node.type === "ImportExpression") return true;
        if (node.type !== "ImportDeclaration" || node["importKind"] === "type") return false;
        return (node["specifiers"] as unknown[]).some((one) => !isFine(one, file));
      },
    );
    refuse(faults, "call through src/delivery/egress, or who names an address reaches our network");
  });

  it("only runLoop loops on a signal", () => {
    const loops = ["WhileStatement", "DoWhileStatement", "ForStatement"];
    const faults = findNodes(
      hand.filter((file) => file !== "src/base/loop.ts"),
      (node, file) => {
        const test = loops.includes(node.type) ? node["test"] : undefined;
        return isNode(test) && /\.aborted\b/.test(codeOf(file, test));
      },
    );
    refuse(faults, "give runLoop a turn instead");
  });

  it("nothing is left to do", () => {
    const left = new RegExp(
      `\\b(${["TO", "FIX"].map((a, i) => a + ["DO", "ME"][i]).join("|")})\\b`,
    );
    const files = TEXT_FILES.filter((file) => file !== "package-lock.json");
    refuse(matches(files, left), "do it, or open an issue");
  });
});

describe("SQL", () => {
  const isSqlFile = (file: string): boolean => /^src\/(.+\/)?sql\/[^/]+\.ts$/.test(file);
  const STATEMENT =
    /^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|TRUNCATE|SET|NOTIFY|LOCK)\s/;
  const CLAUSE = /\b(FROM|WHERE|VALUES|RETURNING|ORDER BY|GROUP BY|ON CONFLICT)\s+["'({$\w]/;
  const SPLICE = /(?<!\$)\{[a-z]+(_[a-z]+)*\}/;

  it("is written in sql folders only", () => {
    const faults = textLiterals(SOURCES.filter((file) => !isSqlFile(file)))
      .filter(({ value }) => STATEMENT.test(value) || CLAUSE.test(value) || SPLICE.test(value))
      .map(({ file, start, value }) => `${placeOf(file, start)}: ${value.trim().split("\n")[0]}`);
    refuse(faults, "move these texts to the sql folder of their responsibility");
  });

  it("names every statement once", () => {
    const seen = new Map<string, string>();
    const faults: string[] = [];
    for (const file of SOURCES) {
      for (const { name, place } of statementNames(file)) {
        const before = seen.get(name);
        if (before !== undefined) faults.push(`${place}: "${name}" is also at ${before}`);
        seen.set(name, place);
      }
    }
    expect(seen.size).toBeGreaterThan(50);
    refuse(faults, "a statement's name is its prepared name and its label");
  });
});

/** Names given to `statement`, also through a function of the same file that passes them on. */
function statementNames(file: string): { name: string; place: string }[] {
  const nodes = nodesOf(file);
  const makers = new Set(["statement"]);
  for (const node of nodes) {
    if (node.type !== "VariableDeclarator") continue;
    const maker = node["init"];
    if (!isNode(maker) || maker.type !== "ArrowFunctionExpression") continue;
    const [first] = maker["params"] as unknown[];
    const passesOn = nodes.some(
      (one) =>
        one.start >= maker.start &&
        one.end <= maker.end &&
        isCallOf(one, "statement") &&
        nameOf(argumentsOf(one)[0]) === nameOf(first),
    );
    if (passesOn && nameOf(first) !== undefined) makers.add(nameOf(node["id"]) ?? "");
  }
  return nodes.flatMap((node) => {
    if (![...makers].some((maker) => isCallOf(node, maker))) return [];
    const [first] = argumentsOf(node);
    const name = first === undefined ? undefined : literalText(first);
    return name === undefined ? [] : [{ name, place: placeOf(file, node.start) }];
  });
}

describe("dependencies", () => {
  it("of the run time are on the allow-list", () => {
    const names = Object.keys(manifest().dependencies ?? {});
    refuse(
      names
        .filter((name) => !RUNTIME_PACKAGES.includes(name))
        .map((name) => `package.json:1: ${name}`),
      "adding a run-time dependency needs a decision record and the allow-list",
    );
  });

  it("are declared by the package that imports them", () => {
    const declared = Object.keys(manifest().dependencies ?? {});
    const faults = SOURCES.flatMap((file) =>
      importsOf(file).flatMap(({ specifier, to, place }) => {
        const name = /^(@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? specifier;
        const isPeer = Object.entries(OPTIONAL_PEERS).some(
          ([folder, peers]) => file.startsWith(folder) && peers.includes(name),
        );
        const isOurs = to !== undefined || name.startsWith("node:");
        const isFine = isOurs || declared.includes(name) || isPeer;
        return isFine ? [] : [`${place}: ${specifier}`];
      }),
    );
    refuse(faults, "a user who installs the package would not have these");
  });

  it("are pinned exactly", () => {
    const { dependencies, devDependencies } = manifest();
    const loose = Object.entries({ ...dependencies, ...devDependencies }).filter(
      ([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version),
    );
    refuse(
      loose.map(([name, version]) => `package.json:1: ${name} ${version}`),
      "write the exact version",
    );
  });

  it("are locked without the address of a registry", () => {
    const faults = [...lockedPackages()].flatMap(([path, { resolved, link }]) =>
      resolved === undefined || link === true ? [] : [`package-lock.json:1: ${path} ${resolved}`],
    );
    refuse(faults, "install with the project's .npmrc, which omits addresses");
  });

  it("are locked for every platform, or npm ci refuses the lock file", () => {
    const locked = lockedPackages();
    const faults = [...locked].flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies)
        .filter((name) => lockedPath(locked, path, name) === undefined)
        .map((name) => `package-lock.json:1: ${name}, which ${path} names`),
    );
    refuse(faults, "a registry that lacks other platforms leaves these out; write them by hand");
  });

  it("that are optional are peers, which nobody must install", () => {
    const { peerDependencies = {}, peerDependenciesMeta = {} } = manifest();
    const peers = Object.values(OPTIONAL_PEERS).flat().sort();
    expect(Object.keys(peerDependencies).sort()).toEqual(peers);
    expect(peers.every((name) => peerDependenciesMeta[name]?.optional === true)).toBe(true);
  });

  it("of the run time need no install script", () => {
    const locked = lockedPackages();
    const closure = runtimeClosure();
    expect(closure).toContain("node_modules/pg-protocol");
    refuse(
      closure
        .filter((path) => !NEEDLESS_SCRIPTS.includes(path))
        .filter((path) => locked.get(path)?.hasInstallScript === true)
        .map((path) => `package-lock.json:1: ${path}`),
      "nothing may run when the package is installed",
    );
  });
});

describe("documents", () => {
  const missingIn = (page: string, words: Iterable<string>, asCode: boolean): string[] => {
    const text = textIfAny(page);
    return [...new Set(words)].sort().flatMap((word) => {
      const escaped = word.replace(/[$-]/g, "\\$&");
      const pattern = asCode
        ? `\`(?:[\\w.]+\\.)?${escaped}\\??\``
        : `(?<![\\w-])${escaped}(?![\\w-])`;
      return new RegExp(pattern).test(text) ? [] : [`${page}:1: does not have ${word}`];
    });
  };

  it("name every error code", () => {
    const codes = textLiterals(SOURCES).flatMap(({ value }) => /^TM_[A-Z_]+$/.exec(value) ?? []);
    expect(codes.length).toBeGreaterThan(5);
    refuse(missingIn("docs/reference/errors.md", codes, false), "document these error codes");
  });

  it("name every metric", () => {
    const metrics = SOURCES.flatMap((file) =>
      nodesOf(file).flatMap((node) => {
        const maker = node.type === "NewExpression" ? nameOf(node["callee"]) : undefined;
        if (!/^(Counter|AskedGauge|Gauge|Histogram)$/.test(maker ?? "")) return [];
        const [name] = argumentsOf(node);
        return (name === undefined ? undefined : literalText(name)) ?? [];
      }),
    );
    expect(metrics).toContain("tidemill_events_handled_total");
    refuse(missingIn("docs/reference/metrics.md", metrics, false), "document these metrics");
  });

  it.each<[name: string, file: string, page?: string]>([
    ["WorkerOptions", "src/worker/options.ts"],
    ["ConnectOptions", "src/worker/connect.ts"],
    ["NamesOptions", "src/db/names.ts"],
    ["TableOptions", "src/db/names.ts"],
    ["PartitioningOptions", "src/db/migrations.ts"],
    ["ConsumerOptions", "src/consumers/consumer.ts"],
    ["EgressOptions", "src/delivery/egress/options.ts", "docs/explanation/egress.md"],
    ["ServerOptions", "src/server/options.ts", "docs/reference/server.md"],
    ["TlsOptions", "src/server/grpc/tls.ts", "docs/reference/server.md"],
    ["DeliverOptions", "src/delivery/options.ts"],
    ["EndpointOptions", "src/delivery/endpoint.ts"],
    ["SubscriptionOptions", "src/delivery/notices/subscription.ts"],
    ["HttpCall", "src/tasks/http-call.ts"],
    ["HttpJobsOptions", "src/delivery/jobs/options.ts"],
    ["AuthOptions", "src/server/auth/create.ts", "docs/reference/auth.md"],
    ["Grant", "src/server/auth/credentials.ts", "docs/reference/auth.md"],
    ["JwtIssuerOptions", "src/server/auth/issuer-options.ts", "docs/reference/auth.md"],
    ["HttpLimits", "src/server/http/options.ts", "docs/reference/http.md"],
    ["ListenOptions", "src/server/http/listener.ts", "docs/reference/http.md"],
    ["ConnectionOptions", "src/client/connection-options.ts", "docs/reference/client.md"],
    ["ClientTlsOptions", "src/client/tls.ts", "docs/reference/client.md"],
    ["ProducerOptions", "src/client/producer/producer-options.ts", "docs/reference/client.md"],
    ["RemoteWorkerOptions", "src/client/worker/worker-options.ts", "docs/reference/client.md"],
    ["RestOptions", "src/client/rest/http-call.ts", "docs/reference/client.md"],
    ["KafkaOptions", "src/kafka/connect-options.ts", "docs/reference/kafka.md"],
    ["KafkaIngestOptions", "src/kafka/ingest-options.ts", "docs/reference/kafka.md"],
    ["PublishEventsOptions", "src/kafka/publish-events.ts", "docs/reference/kafka.md"],
    ["PublishTasksOptions", "src/kafka/publish-tasks.ts", "docs/reference/kafka.md"],
    ["FeedOptions", "src/client/rest/rest-feed.ts", "docs/reference/feed.md"],
  ])("name every option of %s", (name, file, page = "docs/reference/options.md") => {
    const options = propertiesOf(file, name);
    expect(options.length).toBeGreaterThan(2);
    refuse(missingIn(page, options, true), `document these of ${name}`);
  });

  it("name every flag of the command line", () => {
    const files = SOURCES.filter((file) => file.startsWith("src/cli/"));
    const flags = textLiterals(files).flatMap(({ value }) =>
      Array.from(value.matchAll(/(?<![\w-])--[a-z][a-z-]*[a-z]/g), ([flag]) => flag),
    );
    refuse(missingIn("docs/reference/cli.md", flags, false), "document these flags");
  });

  it("link to files and headings that exist", () => {
    refuse(brokenLinks(), "these links are broken");
  });

  it("are all listed in docs/README.md", () => {
    refuse(unlistedPages("docs"), "nobody finds these pages; list them in docs/README.md");
  });
});

describe("tests", () => {
  it("are all run", () => {
    const faults = findNodes(TESTS, (node, file) => {
      if (node.type !== "MemberExpression") return false;
      const property = nameOf(node["property"]) ?? "";
      const root = /^(it|test|describe|suite)\b/.test(codeOf(file, node));
      return root && /^(only|skip|todo|skipIf|runIf|fails)$/.test(property);
    });
    refuse(faults, 'run it, delete it, or say why not with ctx.skip("reason")');
  });

  it("wait for signals or facts, not for time", () => {
    const faults = findNodes(
      TESTS,
      (node) =>
        isCallOf(node, "setTimeout") ||
        (node.type === "ImportSpecifier" && nameOf(node["imported"]) === "setTimeout"),
    );
    refuse(faults, "wait for what happens; test/support/eventually.ts looks until it does");
  });

  it("share helpers that set nothing up when they are loaded", () => {
    const isHelper = (file: string): boolean =>
      file.startsWith("test/") && !TESTS.includes(file) && file !== "test/support/each-file.ts";
    const faults = TYPESCRIPT.filter(isHelper).flatMap((file) =>
      topLevelOf(file)
        .filter((node) => /^(vi\.|(before|after)(All|Each)\()/.test(codeOf(file, node)))
        .map((node) => `${placeOf(file, node.start)}: a hook`),
    );
    refuse(faults, "only the first file that loads it would have it; see each-file.ts");
  });
});

describe("the repository", () => {
  it("knows nothing of the machine it was written on", () => {
    const folders = ["work", "root", "farm"].join("|");
    refuse(
      matches(TEXT_FILES, new RegExp(`(?<![\\w.:/-])/(${folders})/[\\w.-]*`)),
      "write paths relative to the repository",
    );
  });

  it("names no registry", () => {
    const hosts = [
      ["registry", "npmjs", "org"],
      ["proxy", "golang", "org"],
      ["repo1", "maven", "org"],
      ["deb", "debian", "org"],
    ].map((parts) => parts.join("\\."));
    refuse(
      matches(TEXT_FILES, new RegExp(hosts.join("|"))),
      "the machine's own configuration names it",
    );
  });
});
