import { Tidemill } from "tidemill";
import { consumers } from "./consumers.ts";

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
process.once("SIGINT", () => stop.abort());

await using mill = await Tidemill.connect(process.env["DATABASE_URL"]);
// Runs until the signal; then it finishes its batches, gives its consumers back and returns.
await mill.worker({ consumers }).start(stop.signal);
