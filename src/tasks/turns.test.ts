import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Turns, type TurnTaker } from "./turns.ts";

interface Tenant extends TurnTaker {
  readonly name: string;
  tasks: number;
}

const LENGTH = 3;

/** Tenants with so many tasks each, and who started one, in order. */
class Scene {
  readonly ended = { value: 0 };
  readonly turns = new Turns<Tenant>(this.ended);
  readonly started: string[] = [];

  tenant(name: string, tasks: number, weight = 1): Tenant {
    const tenant = { name, tasks: 0, weight, credit: 0, isInLine: false };
    this.give(tenant, tasks);
    return tenant;
  }

  give(tenant: Tenant, tasks: number): void {
    tenant.tasks += tasks;
    if (tasks > 0) this.turns.join(tenant);
  }

  start(count: number): string {
    for (let left = count; left > 0; left -= 1) {
      const tenant = this.turns.next(LENGTH, ({ tasks }) => tasks > 0);
      if (tenant === undefined) break;
      tenant.tasks -= 1;
      tenant.credit -= 1;
      this.started.push(tenant.name);
    }
    return this.started.splice(0).join("");
  }
}

describe("turns", () => {
  it("go round", () => {
    const scene = new Scene();
    for (const name of ["a", "b", "c"]) scene.tenant(name, 100);
    expect(scene.start(14)).toBe("aaabbbcccaaabb");
  });

  it("end early for whoever has nothing more", () => {
    const scene = new Scene();
    scene.tenant("a", 100);
    scene.tenant("b", 1);
    expect(scene.start(10)).toBe("aaabaaaaaa");
  });

  it("are interrupted by nobody, and let in at once who comes after their length", () => {
    const scene = new Scene();
    scene.tenant("a", 100);
    expect(scene.start(2)).toBe("aa");
    scene.tenant("b", 1);
    expect(scene.start(10)).toBe("abaaaaaaaa");
    scene.tenant("c", 1);
    expect(scene.start(2)).toBe("ca");
  });

  it("are as long as the weight says, and may be too short for every round", () => {
    const scene = new Scene();
    scene.tenant("a", 100, 2);
    scene.tenant("b", 100, 0.5);
    scene.tenant("c", 100, 0.2);
    const first = scene.start(20);
    expect(first).toBe("aaaaaabaaaaaabbcaaaa");
    const all = first + scene.start(80);
    expect([count(all, "a"), count(all, "b"), count(all, "c")]).toEqual([75, 18, 7]);
  });

  it("give no credit for having been away", () => {
    const scene = new Scene();
    const b = scene.tenant("b", 1);
    scene.tenant("a", 1_000);
    scene.start(500);
    scene.give(b, 100);
    expect(scene.start(12)).toBe("bbbaaabbbaaa");
  });

  it("come round for those that wait while others keep coming", () => {
    const scene = new Scene();
    scene.tenant("a", 1_000);
    let started = "";
    for (let come = 0; come < 100; come += 1) {
      scene.tenant("b", 1);
      started += scene.start(2);
    }
    expect(count(started, "a")).toBeGreaterThanOrEqual(100);
  });

  it("are counted when they end for another's, and not of one who is alone or has no more", () => {
    const scene = new Scene();
    scene.tenant("a", 20);
    scene.start(9);
    expect(scene.ended.value).toBe(0);
    scene.tenant("b", 2);
    expect(scene.start(8)).toBe("bbaaaaaa");
    expect(scene.ended.value).toBe(1);
    scene.tenant("c", 4);
    expect(scene.start(7)).toBe("cccaaac");
    expect(scene.ended.value).toBe(4);
  });

  it("make nobody who comes wait for more than one turn of each other", () => {
    const move = fc.record({ tenant: fc.nat(3), give: fc.nat(6), start: fc.nat(8) });
    fc.assert(
      fc.property(fc.array(move, { maxLength: 60 }), (moves) => {
        const scene = new Scene();
        const tenants = ["a", "b", "c", "d"].map((name, n) =>
          scene.tenant(name, 0, [1, 2, 1, 3][n]),
        );
        const waiting = new Map<string, string[]>(); // What started since each has come.
        for (const { tenant: n, give, start } of moves) {
          const tenant = tenants[n];
          if (tenant === undefined) continue;
          if (tenant.tasks === 0 && give > 0) waiting.set(tenant.name, []);
          scene.give(tenant, give);
          for (const name of range(start).map(() => scene.start(1))) {
            waiting.delete(name);
            for (const [late, seen] of waiting) {
              seen.push(name);
              const ofOne = seen.filter((one) => one === name).length;
              const weight = tenants.find((one) => one.name === name)?.weight ?? 0;
              expect(ofOne, `${late} waits for ${name}`).toBeLessThanOrEqual(LENGTH * weight);
            }
          }
        }
      }),
    );
  });
});

const count = (started: string, name: string): number => started.split(name).length - 1;
const range = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
