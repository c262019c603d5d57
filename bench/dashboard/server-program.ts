import { Tidemill } from "tidemill";
import { TidemillServer } from "tidemill/server";
import { listen } from "../support/spoken.ts";
import { TOKEN } from "./token.ts";

interface Options {
  readonly url: string;
  readonly port: number;
}

const { url, port } = JSON.parse(process.argv.at(-1) ?? "{}") as Options;

const mill = await Tidemill.connect(url);
const server = new TidemillServer(mill, {
  host: "127.0.0.1",
  producer: false,
  worker: false,
  http: { port },
  metrics: false,
  deliverWebhooks: false,
  drainSeconds: 1,
  auth: { staticTokens: [{ token: TOKEN, tenant: "default", scopes: ["admin"] }] },
});
await server.start();

await listen(async () => ({ us: processorTimeUs() }));
await server.stop();
await mill.close();
process.exit(0);

function processorTimeUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
