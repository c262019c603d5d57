import { Agent, request } from "node:http";
import { Tidemill } from "tidemill";
import type { OpenOptions } from "../tasks/protocol.ts";
import { type Payload, type Producer, serve } from "../tasks/role.ts";
import { openServer } from "./server.ts";
import { CONNECTIONS, QUEUE, TOKEN } from "./token.ts";

interface HeldTask {
  readonly id: string;
  readonly token: string;
  readonly payload: Payload;
}

/** Calls a server over connections that stay open. */
class Rest {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  readonly #port: number;

  constructor({ server: ports }: OpenOptions) {
    if (ports === undefined) throw new Error("where is the server?");
    this.#port = ports.http;
  }

  async post(path: string, body: object): Promise<unknown> {
    const text = JSON.stringify(body);
    return await new Promise((resolve, reject) => {
      const call = request(
        {
          agent: this.#agent,
          host: "127.0.0.1",
          port: this.#port,
          method: "POST",
          path,
          headers: {
            authorization: `Bearer ${TOKEN}`,
            "content-type": "application/json",
            "content-length": Buffer.byteLength(text),
          },
        },
        (answer) => {
          const parts: Buffer[] = [];
          answer.on("data", (part: Buffer) => void parts.push(part));
          answer.on("error", reject);
          answer.on("end", () => {
            const said = Buffer.concat(parts).toString();
            const { statusCode = 0 } = answer;
            if (statusCode < 300) resolve(said === "" ? undefined : JSON.parse(said));
            else reject(new Error(`${path}: ${statusCode} ${said}`));
          });
        },
      );
      call.on("error", reject);
      call.end(text);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** Each task is created by a call, claimed by another, and completed by a third. */
serve({
  async prepare(url) {
    await Tidemill.migrate(url);
  },

  openServer,

  async openProducer(options): Promise<Producer> {
    const rest = new Rest(options);
    return {
      async enqueue(payloads) {
        // The agent lets as many calls go at once as it has connections.
        await Promise.all(
          payloads.map((payload) => rest.post("/v1/tasks", { queue: QUEUE, payload })),
        );
      },
      async close() {
        rest.close();
      },
    };
  },

  async openWorker(options, handler) {
    const rest = new Rest(options);
    const over = new AbortController();
    const work = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const claim = { queues: [QUEUE], count: 1, waitSeconds: 1 };
        const { tasks } = (await rest.post("/v1/claims", claim)) as { tasks: HeldTask[] };
        for (const { id, token, payload } of tasks) {
          await handler(payload);
          await rest.post(`/v1/tasks/${id}/complete`, { token, result: { ok: true } });
        }
      }
    };
    const working = Promise.all(Array.from({ length: CONNECTIONS }, work));
    working.catch((error: unknown) =>
      setImmediate(() => {
        throw error; // Ends the process: a figure without some of its workers would be wrong.
      }),
    );
    return {
      async close() {
        over.abort();
        await working;
        rest.close();
      },
    };
  },
});
