import { constants } from "node:fs";
import { open, readFile, rename, rm, stat } from "node:fs/promises";

/** The `code` of a failed system call, such as `ENOENT`. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}

/** What `attempt` gives, or `undefined` when the file or directory is not there. */
export async function ifPresent<T>(attempt: Promise<T>): Promise<T | undefined> {
  try {
    return await attempt;
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return undefined;
    throw error;
  }
}

export function readIfPresent(path: string): Promise<string | undefined> {
  return ifPresent(readFile(path, "utf8"));
}

export async function isPresent(path: string): Promise<boolean> {
  return (await ifPresent(stat(path))) !== undefined;
}

/**
 * Opens a file of the data directory for writing, emptied. Root writes here into a directory that a
 * lesser user owns, so a link planted there must fail and not lead root to some other file.
 */
export function openEmptied(path: string, mode: number) {
  const { O_WRONLY, O_APPEND, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  return open(path, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
}

/**
 * Makes a directory that was built aside appear under its name, complete or not at all. When
 * another process published the same thing first, ours is dropped and theirs is used.
 */
export async function publishDirectory(staged: string, target: string): Promise<void> {
  try {
    await rename(staged, target);
  } catch (error) {
    if (!(await isPresent(target))) throw error;
    await rm(staged, { recursive: true, force: true });
  }
}
