import { rmSync } from "node:fs";

/*
 * Outlives the benchmark by a moment: when that ends, in whatever way, its end of our standard
 * input closes, and the server and its folder must go.
 */

const [pid, folder] = process.argv.slice(2);

const isGone = () => {
  try {
    process.kill(Number(pid), "SIGQUIT");
    return false;
  } catch {
    return true;
  }
};

process.stdin.resume().once("close", () => {
  const ending = setInterval(() => {
    if (!isGone()) return;
    clearInterval(ending);
    rmSync(folder, { recursive: true, force: true });
  }, 100);
});
