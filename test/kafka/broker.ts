import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { scratch } from "../support/scratch.ts";
import { brokerClasspath } from "./classpath.ts";

const run = promisify(execFile);
const READY = "Kafka Server started";
const START_MS_MAX = 60_000;
/** A broker for tests has little to do, and is to start quickly. */
const JVM = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/** Below those that systems hand out: nobody is given it before the broker has it, or again. */
const PORTS = { from: 20_000, to: 30_000 };

async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}

const settings = (folder: string, port: number, controllerPort: number): string =>
  Object.entries({
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.quorum.voters": `1@127.0.0.1:${controllerPort}`,
    listeners: `PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    "advertised.listeners": `PLAINTEXT://127.0.0.1:${port}`,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": join(folder, "logs"),
    "auto.create.topics.enable": false,
    "log.cleaner.enable": false,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "broker.session.timeout.ms": 1_500, // One that was killed comes back when this is over.
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "log.retention.check.interval.ms": 1_000,
    "log.initial.task.delay.ms": 1_000,
  })
    .map(([name, value]) => `${name}=${value}\n`)
    .join("");

/** A real Kafka, controller and broker in one process, on this machine only. */
export class Broker {
  readonly address: string;
  readonly #folder: string;
  readonly #classpath: string;
  #child: ChildProcess | undefined;
  #log = "";

  private constructor(folder: string, classpath: string, address: string) {
    this.#folder = folder;
    this.#classpath = classpath;
    this.address = address;
  }

  static async start(jvm: readonly string[] = JVM): Promise<Broker> {
    const classpath = await brokerClasspath();
    const folder = mkdtempSync(join(scratch(), "tidemill-kafka-"));
    const [port, controllerPort] = [await freePort(), await freePort()];
    const broker = new Broker(folder, classpath, `127.0.0.1:${port}`);
    const file = join(folder, "server.properties");
    writeFileSync(file, settings(folder, port, controllerPort));
    const cluster = randomBytes(16).toString("base64url");
    try {
      const words = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", file];
      await run("java", [...JVM, "-cp", classpath, ...words]);
      await broker.run(jvm);
    } catch (error) {
      await broker.close();
      throw error;
    }
    return broker;
  }

  /** Starts it where it was started before, with what it had. */
  async run(jvm: readonly string[] = JVM): Promise<void> {
    const file = join(this.#folder, "server.properties");
    const child = spawn("java", [...jvm, "-cp", this.#classpath, "kafka.Kafka", file], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#child = child;
    const lines = createInterface({ input: child.stderr });
    const ready = new Promise<void>((resolve) => {
      lines.on("line", (line) => {
        this.#log = `${this.#log}${line}\n`.slice(-20_000);
        if (line.includes(READY)) resolve();
      });
    });
    const ended = once(child, "exit").then(() => {
      throw new Error(`the broker ended: ${this.#log}`);
    });
    ended.catch(() => {}); // Only matters before it has started.
    const late = AbortSignal.timeout(START_MS_MAX);
    const tooLate = once(late, "abort").then(() => {
      throw new Error(`the broker did not start: ${this.#log}`);
    });
    tooLate.catch(() => {});
    await Promise.race([ready, ended, tooLate]);
  }

  /** Ends the process; what it was told and acknowledged is in its folder. */
  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    child.kill("SIGCONT"); // One that is frozen would not hear it.
    await exited;
  }

  /** It takes what is sent and answers nothing, until it is woken. */
  freeze(): void {
    this.#child?.kill("SIGSTOP");
  }

  wake(): void {
    this.#child?.kill("SIGCONT");
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
