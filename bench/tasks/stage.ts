import type { BenchServer } from "../support/server.ts";
import { Child } from "./child.ts";
import type { TaskSystem } from "./system.ts";

/**
 * Where sessions get their databases and processes. A quick run lends the same processes again,
 * because to start them would take as long as what is measured.
 */
export class Stage {
  readonly server: BenchServer;
  readonly #reuses: boolean;
  readonly #templates = new Map<TaskSystem, Promise<string>>();
  readonly #idle = new Map<TaskSystem, Child[]>();

  constructor(server: BenchServer, options: { readonly reuseProcesses: boolean }) {
    this.server = server;
    this.#reuses = options.reuseProcesses;
  }

  /** A fresh database with the schema of a system, which is made once and copied. */
  async database(system: TaskSystem): Promise<string> {
    const template = this.#templates.get(system) ?? this.#prepare(system);
    this.#templates.set(system, template);
    return await this.server.bareDatabase(await template);
  }

  lend(system: TaskSystem): Child {
    return this.#idle.get(system)?.pop() ?? new Child(system.program);
  }

  /** Takes back a process whose role is at its end. */
  async takeBack(system: TaskSystem, child: Child): Promise<void> {
    await child.close();
    if (!this.#reuses) return await child[Symbol.asyncDispose]();
    this.#idle.set(system, [...(this.#idle.get(system) ?? []), child]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const children = [...this.#idle.values()].flat();
    await Promise.allSettled(children.map((child) => child[Symbol.asyncDispose]()));
  }

  async #prepare(system: TaskSystem): Promise<string> {
    const url = await this.server.bareDatabase();
    const child = this.lend(system);
    await child.open("prepare", { url, purpose: "throughput" });
    await this.takeBack(system, child);
    return url;
  }
}
