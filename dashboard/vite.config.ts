import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, gzip } from "node:zlib";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const SMALL_BYTES = 512;

/** Every file is compressed once, when it is built, and never while somebody waits for it. */
function precompress(): Plugin {
  let folder = "";
  return {
    name: "precompress",
    apply: "build",
    configResolved({ root, build }) {
      folder = resolve(root, build.outDir);
    },
    async closeBundle() {
      const entries = await readdir(folder, { recursive: true, withFileTypes: true });
      const files = entries.filter((one) => one.isFile() && !/\.(br|gz)$/.test(one.name));
      await Promise.all(
        files.map(async ({ parentPath, name }) => {
          const path = join(parentPath, name);
          const bytes = await readFile(path);
          if (bytes.length < SMALL_BYTES) return;
          await writeFile(`${path}.gz`, await promisify(gzip)(bytes, { level: 9 }));
          await writeFile(`${path}.br`, await promisify(brotliCompress)(bytes));
        }),
      );
    },
  };
}

export default defineConfig({
  root: here("."),
  base: "/",
  plugins: [react(), tailwindcss(), precompress()],
  resolve: { alias: { "node:util": here("./src/shims/node-util.ts") } },
  worker: { format: "es" },
  build: {
    outDir: here("../dist/dashboard"),
    emptyOutDir: true,
    target: "es2023",
    // As files: the policy of the page allows no data but pictures.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // On a busy machine it warns of the time that compressing takes, to whoever starts the shop.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
});
