import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { buildProgram } from "../../../src/cli/program.ts";
import { serverOptionsOf } from "../../../src/cli/serve/server-options.ts";
import { SERVE_SETTINGS, type ServeFlags } from "../../../src/cli/serve/settings.ts";
import { readEnvironment } from "../../../src/cli/settings.ts";
import { type ResolvedServerOptions, resolveServerOptions } from "../../../src/server/options.ts";
import { onCleanup, type TestDatabase, testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { cli, type RunningCli, startCli, startNode } from "../cli/cli.ts";
import { allPages, blocksOf, REPOSITORY, readPage } from "./blocks.ts";
import { commandsOf, faultOf, wordsOf } from "./commands.ts";

const FOLDER = "deploy/kubernetes";
const PAGE = "docs/how-to/deploy-on-kubernetes.md";
/** Beyond the drain, for the last ends: what the process must not need. */
const SPARE_SECONDS = 10;

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

interface Container {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly args?: readonly string[];
  readonly env: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly secretKeyRef: { readonly name: string; readonly key: string } };
  }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly startupProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly livenessProbe?: Probe;
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: string[] } } };
}

type Labels = Readonly<Record<string, string>>;

interface Pod {
  readonly metadata: { readonly labels: Labels; readonly annotations?: Labels };
  readonly spec: {
    readonly terminationGracePeriodSeconds?: number;
    readonly containers: readonly [Container];
  };
}

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly template: Pod;
    readonly selector: Labels & { readonly matchLabels?: Labels };
    readonly podSelector: { readonly matchLabels: Labels };
    readonly ports: readonly { readonly targetPort: string; readonly port: number }[];
    readonly ingress?: readonly { readonly ports: readonly { readonly port: string | number }[] }[];
  };
}

function documentsOf(file: string): unknown[] {
  return parseAllDocuments(readPage(`${FOLDER}/${file}`)).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as unknown;
  });
}

const FILES = ["migrate.yaml", "server.yaml", "worker.yaml", "network-policy.yaml"];
const MANIFESTS = FILES.flatMap(documentsOf) as Manifest[];
const PODS = MANIFESTS.filter(({ kind }) => kind === "Deployment" || kind === "Job").map(
  ({ spec }) => spec.template,
);

function podOf(component: string): Pod & { readonly container: Container } {
  const pod = PODS.find(
    ({ metadata }) => metadata.labels["app.kubernetes.io/component"] === component,
  );
  if (pod === undefined) throw new Error(`there is no ${component}`);
  return { ...pod, container: pod.spec.containers[0] };
}

/** What the manifest says outright; secrets are the reader's. */
const valuesOf = ({ env }: Container): Record<string, string> =>
  Object.fromEntries(
    env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
  );

const variableOf = (flags: string): string =>
  `TIDEMILL_${(/^--([a-z-]+)/.exec(flags)?.[1] ?? "").replaceAll("-", "_").toUpperCase()}`;

const SERVE_VARIABLES = SERVE_SETTINGS.map(({ flags }) => variableOf(flags));

/** As `tidemill serve` would understand these variables. */
function servedWith(environment: Record<string, string>): ResolvedServerOptions {
  const serve = buildProgram().commands.find((one) => one.name() === "serve");
  if (serve === undefined) throw new Error("there is no serve");
  readEnvironment(serve, SERVE_SETTINGS, environment);
  return resolveServerOptions(serverOptionsOf(serve.optsWithGlobals<ServeFlags>()));
}

const isWithin = (part: Labels, whole: Labels): boolean =>
  Object.entries(part).every(([name, value]) => whole[name] === value);

it("the server is started with flags, variables and ports that it has", () => {
  const { container, spec } = podOf("server");
  expect(container.command).toEqual(["tidemill"]);
  expect(faultOf(container.args ?? [])).toBeUndefined();
  const values = valuesOf(container);
  expect(SERVE_VARIABLES).toEqual(expect.arrayContaining(Object.keys(values)));
  const { http, worker, producer, metrics, drainSeconds } = servedWith(values);
  const ports = { http, workers: worker, producers: producer, metrics };
  expect(
    Object.fromEntries((container.ports ?? []).map((port) => [port.name, port.containerPort])),
  ).toEqual(Object.fromEntries(Object.entries(ports).map(([name, at]) => [name, at?.port])));
  for (const at of Object.values(ports)) expect(at?.host).toBe("0.0.0.0");
  const [command, rest] = container.lifecycle?.preStop.exec.command ?? [];
  expect(command).toBe("sleep");
  expect(spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(
    Number(rest) + drainSeconds + SPARE_SECONDS,
  );

  const [patch] = documentsOf("tls/server.yaml") as [Manifest];
  const [patched] = patch.spec.template.spec.containers;
  expect(patched.name).toBe(container.name);
  expect(SERVE_VARIABLES).toEqual(expect.arrayContaining(Object.keys(valuesOf(patched))));
});

it("names, labels, ports and secrets of the manifests fit together", async () => {
  const [{ resources, images }] = documentsOf("kustomization.yaml") as [
    { resources: string[]; images: { name: string }[] },
  ];
  expect(resources.toSorted()).toEqual(FILES.toSorted());
  const inFolder = await readdir(join(REPOSITORY, FOLDER));
  expect(inFolder.filter((file) => file.endsWith(".yaml")).toSorted()).toEqual(
    [...FILES, "kustomization.yaml"].toSorted(),
  );
  const used = PODS.map(({ spec }) => spec.containers[0].image);
  expect([...new Set(used)].toSorted()).toEqual(images.map(({ name }) => name).toSorted());

  for (const { kind, metadata, spec } of MANIFESTS) {
    if (kind === "Job") continue;
    const wanted =
      kind === "NetworkPolicy"
        ? spec.podSelector.matchLabels
        : (spec.selector.matchLabels ?? spec.selector);
    const chosen = PODS.filter(({ metadata: { labels } }) => isWithin(wanted, labels));
    expect(chosen, `pods of ${kind} ${metadata.name}`).toHaveLength(1);
    const names = (chosen[0]?.spec.containers[0].ports ?? []).map(({ name }) => name);
    const targets = [
      ...(kind === "Service" ? spec.ports.map(({ targetPort }) => targetPort) : []),
      ...(spec.ingress ?? []).flatMap(({ ports }) => ports.map(({ port }) => String(port))),
    ];
    expect(names, `ports of ${kind} ${metadata.name}`).toEqual(expect.arrayContaining(targets));
  }

  const made = blocksOf(PAGE, "sh")
    .map(({ code }) => code)
    .join("\n");
  for (const { spec } of PODS) {
    for (const { valueFrom } of spec.containers[0].env) {
      if (valueFrom === undefined) continue;
      const { name, key } = valueFrom.secretKeyRef;
      expect(made).toMatch(new RegExp(`create secret generic ${name}\\b`));
      expect(made).toContain(`--from-literal=${key}=`);
    }
  }
});

async function freePort(): Promise<number> {
  const server = createServer();
  const port = await new Promise<number>((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as { port: number }).port));
  });
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Every path that Kubernetes or Prometheus asks for, by the name of its port. */
function askedOf({
  container,
  metadata,
}: ReturnType<typeof podOf>): [port: string, path: string][] {
  const { startupProbe, readinessProbe, livenessProbe } = container;
  const probes = [startupProbe, readinessProbe, livenessProbe].flatMap((probe) =>
    probe === undefined ? [] : [[probe.httpGet.port, probe.httpGet.path] as [string, string]],
  );
  const { annotations = {} } = metadata;
  const scraped = (container.ports ?? []).find(
    ({ containerPort }) => String(containerPort) === annotations["prometheus.io/port"],
  );
  return [...probes, [scraped?.name ?? "", annotations["prometheus.io/path"] ?? ""]];
}

async function scratchFile(name: string, text: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "tidemill-deploy-"));
  onCleanup(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, name), text, { mode: 0o600 });
  return join(folder, name);
}

const ANYWHERE = {
  TIDEMILL_HOST: "127.0.0.1",
  TIDEMILL_HTTP: "0",
  TIDEMILL_WORKER: "0",
  TIDEMILL_PRODUCER: "0",
  TIDEMILL_METRICS: "127.0.0.1:0",
};

it("migrates, serves and answers the probes as the manifests have it", async () => {
  const { url } = await testDatabase({ migrated: false });
  const { args = [] } = podOf("migrate").container;
  expect(await cli(url, ...args)).toMatch(/applied|migrat/i);
  const tokens = [{ token: "token-of-a-reader-0123456789", tenant: "acme", scopes: ["read"] }];
  const file = await scratchFile("tokens.json", JSON.stringify({ tokens }));

  const pod = podOf("server");
  const ours = { ...ANYWHERE, DATABASE_URL: url, TIDEMILL_TOKENS_FILE: file };
  const env = { ...valuesOf(pod.container), ...ours };
  const running = startCli(pod.container.args ?? [], { env });
  const at = JSON.parse(await running.line(/"message":"serving"/)) as Record<string, string>;
  for (const [port, path] of askedOf(pod)) {
    const answer = await fetch(`http://${at[port]}${path}`);
    expect({ port, path, status: answer.status }).toEqual({ port, path, status: 200 });
    if (port === "metrics") expect(await answer.text()).toContain("tidemill_http_requests_total");
  }
  running.child.kill("SIGTERM");
  expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
});

async function startWorker(
  database: TestDatabase,
  env: Record<string, string>,
): Promise<RunningCli> {
  const [program] = blocksOf(PAGE, "ts");
  const file = await scratchFile("worker.mts", program?.code ?? "");
  return startNode(["--import", "tsx", file], {
    cwd: REPOSITORY,
    env: { ...env, DATABASE_URL: database.url },
  });
}

it("the worker of the page answers the probes, works, and ends with its drain", async () => {
  const database = await testDatabase();
  const pod = podOf("worker");
  const { DRAIN_SECONDS, METRICS_PORT, ...others } = valuesOf(pod.container);
  expect(others).toEqual({});
  expect(pod.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(
    Number(DRAIN_SECONDS) + SPARE_SECONDS,
  );
  const ports = pod.container.ports?.map(({ containerPort }) => String(containerPort));
  expect(ports).toEqual([METRICS_PORT]);

  const port = await freePort();
  const env = { DRAIN_SECONDS: DRAIN_SECONDS ?? "", METRICS_PORT: String(port) };
  const running = await startWorker(database, env);
  const base = `http://127.0.0.1:${port}`;
  await eventually(async () => {
    expect(running.child.exitCode).toBeNull();
    expect((await fetch(`${base}/healthz`)).status).toBe(200);
  });
  for (const [, path] of askedOf(pod)) expect((await fetch(base + path)).status).toBe(200);

  const mill = await database.connect();
  const task = await mill.enqueue("receipts", { order: "9182" });
  expect(await task.result()).toEqual({ sent: "9182" });
  expect(await (await fetch(`${base}/metrics`)).text()).toContain(
    'tidemill_task_completions_total{queue="receipts"} 1',
  );
  running.child.kill("SIGTERM");
  expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
});

it("every tidemill command of the documents exists, with its flags and arguments", async () => {
  const commands = (await allPages()).flatMap(commandsOf);
  expect(commands.length).toBeGreaterThan(40);
  const faults = commands.flatMap(({ place, text }) => {
    const fault = faultOf(wordsOf(text));
    return fault === undefined ? [] : [`${place}: tidemill ${text}: ${fault}`];
  });
  expect(faults).toEqual([]);
  expect(faultOf(["task", "get"])).toBeDefined();
  expect(faultOf(["queue", "list", "--jsno"])).toBeDefined();
});

it("every statement of the runbooks and of the page of sizing runs", async () => {
  const { pool } = await testDatabase();
  const page = "docs/operations/runbooks.md";
  const asked = blocksOf(page, "sh").flatMap(({ code }) =>
    Array.from(code.matchAll(/^psql .* --command "([^"]+)"$/gm), ([, sql = ""]) => sql),
  );
  expect(asked.length).toBeGreaterThan(3);
  const sized = blocksOf("docs/operations/sizing.md", "sql").map(({ code }) => code);
  expect(sized).toHaveLength(1);
  for (const sql of [...asked, ...sized]) await pool.query(sql);
});
