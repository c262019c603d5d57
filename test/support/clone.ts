import { copyFile, mkdir, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { FILES, ROOT } from "./tidy/repository.ts";

/** What a clone would hold, with what is not committed yet, as if `npm ci` had run in it. */
export async function copyRepository(to: string, without?: RegExp): Promise<void> {
  const files = FILES.filter((file) => without?.test(file) !== true);
  for (const folder of new Set(files.map(dirname))) {
    await mkdir(join(to, folder), { recursive: true });
  }
  await Promise.all(files.map((file) => copyFile(join(ROOT, file), join(to, file))));
  await symlink(join(ROOT, "node_modules"), join(to, "node_modules"));
}
