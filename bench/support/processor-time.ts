import { readdirSync, readFileSync } from "node:fs";

/** Of Linux, on every machine that we know. */
const US_PER_TICK = 10_000;

/** In the fields of /proc/<pid>/stat behind the name, which may hold blanks. */
const PARENT = 1;
const USER = 11;
const SYSTEM = 12;
/** Of children that have ended, and were waited for. */
const ENDED_USER = 13;
const ENDED_SYSTEM = 14;

/**
 * Processor time, in microseconds, that a process and its children have taken so far; undefined
 * where there is no /proc. A PostgreSQL server is one process for each session, which come and go.
 */
export function familyTimeUs(pid: number): number | undefined {
  const parent = statOf(pid);
  if (parent === undefined) return undefined;
  let ticks = sum(parent, USER, SYSTEM, ENDED_USER, ENDED_SYSTEM);
  for (const name of readdirSync("/proc")) {
    const child = /^\d+$/.test(name) ? statOf(Number(name)) : undefined;
    if (child?.[PARENT] === pid) ticks += sum(child, USER, SYSTEM);
  }
  return ticks * US_PER_TICK;
}

function statOf(pid: number): number[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text
      .slice(text.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
  } catch {
    return undefined; // It has ended.
  }
}

const sum = (stat: readonly number[], ...fields: number[]): number =>
  fields.reduce((total, field) => total + (stat[field] ?? 0), 0);
