// What the documents use of frameworks, as these declare it: they would be a hundred packages to
// install for a few types. The programs of the pages were run with the real ones.

declare module "express" {
  import type { Server } from "node:http";

  namespace express {
    interface Request {
      readonly body: unknown;
      readonly params: { readonly id: string };
    }
    interface Response {
      status(code: number): this;
      json(body: unknown): this;
    }
    type Handler = (request: Request, response: Response) => Promise<void> | void;
    type ErrorRequestHandler = (
      error: unknown,
      request: Request,
      response: Response,
      next: (error?: unknown) => void,
    ) => void;
    interface Application {
      use(part: unknown): this;
      get(path: string, handler: Handler): this;
      post(path: string, handler: Handler): this;
      listen(port: number): Server;
    }
    function json(): unknown;
  }
  function express(): express.Application;
  export = express;
}

declare module "fastify" {
  import type { Server } from "node:http";
  import type { Logger } from "tidemill";

  export interface FastifyReply {
    code(code: number): this;
    send(body: unknown): this;
  }
  interface Route {
    Body?: unknown;
    Params?: unknown;
  }
  interface FastifyRequest<R extends Route> {
    readonly body: R["Body"];
    readonly params: R["Params"];
  }
  type Handler<R extends Route> = (request: FastifyRequest<R>, reply: FastifyReply) => unknown;
  export interface FastifyInstance {
    readonly server: Server;
    readonly log: Logger;
    decorate<K extends keyof FastifyInstance>(name: K, value: FastifyInstance[K]): this;
    addHook(name: "onClose", hook: (app: FastifyInstance) => Promise<void>): this;
    get<R extends Route>(path: string, handler: Handler<R>): this;
    post<R extends Route>(path: string, handler: Handler<R>): this;
    setErrorHandler(
      handler: (error: unknown, request: unknown, reply: FastifyReply) => unknown,
    ): this;
    listen(at: { host?: string; port: number }): Promise<string>;
    close(): Promise<void>;
  }
  export default function fastify(options: { logger: boolean }): FastifyInstance;
}

declare module "@nestjs/common" {
  type Hook = Promise<void> | void;
  type Token<T> = abstract new (...parts: never[]) => T;
  interface Provider {
    readonly provide: unknown;
    readonly useFactory: () => unknown;
  }
  interface Parts {
    readonly imports?: readonly unknown[];
    readonly providers?: readonly (Provider | Token<unknown>)[];
    readonly exports?: readonly unknown[];
  }
  export function Injectable(): ClassDecorator;
  export function Global(): ClassDecorator;
  export function Module(parts: Parts): ClassDecorator;
  export interface OnApplicationBootstrap {
    onApplicationBootstrap(): Hook;
  }
  export interface BeforeApplicationShutdown {
    beforeApplicationShutdown(signal?: string): Hook;
  }
  export interface OnApplicationShutdown {
    onApplicationShutdown(signal?: string): Hook;
  }
}

declare module "@nestjs/core" {
  interface Context {
    get<T>(token: abstract new (...parts: never[]) => T): T;
    get<T>(token: unknown): T;
    enableShutdownHooks(): this;
    close(): Promise<void>;
  }
  interface Application extends Context {
    listen(port: number): Promise<unknown>;
  }
  export const NestFactory: {
    create(module: unknown): Promise<Application>;
    createApplicationContext(module: unknown): Promise<Context>;
  };
}

/** The first block of docs/how-to/use-with-nextjs.md, under the names that others import it by. */
declare module "*/lib/mill" {
  import type { Queue, Tidemill } from "tidemill";
  export function mill(): Promise<Tidemill>;
  export const receipts: Queue<{ order: string; to: string }>;
}
