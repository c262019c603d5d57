import type { Clock } from "../../base/clock.ts";
import { LimitError, messageOf } from "../../base/errors.ts";
import { writeJson } from "../../base/json-text.ts";
import type { Logger } from "../../base/log.ts";
import type { Budget } from "../producer/budget.ts";
import { audited } from "./audit.ts";
import { BodyRoom } from "./body-room.ts";
import type { Answer, Endpoint, ErrorStyle } from "./endpoint.ts";
import { type Arrival, type GateContext, letIn, requestIdOf } from "./gate.ts";
import type { HttpMetrics } from "./metrics.ts";
import { type Problem, problemType, toProblem } from "./problem.ts";

export interface AnsweringContext extends GateContext {
  readonly metrics: HttpMetrics;
  readonly clock: Clock;
  /** What the bodies of all calls may take together. */
  readonly bodies: Budget;
}

/** One request to one endpoint, from its first letter to its answer. Never throws. */
export async function answer(
  context: AnsweringContext,
  endpoint: Endpoint,
  request: Request,
  params: Arrival["params"],
): Promise<Response> {
  const { metrics, clock } = context;
  const requestId = requestIdOf(request.headers);
  const startedAtMs = clock.now();
  const room = new BodyRoom(context.bodies);
  let response: Response;
  try {
    const call = await letIn(context, endpoint, { request, params, requestId, room });
    const { logger, mill } = context;
    const answered = await audited({ logger, db: mill.engine.db }, endpoint, call);
    response = toResponse(answered, requestId);
  } catch (error) {
    if (error instanceof LimitError) metrics.limited.add();
    const { errors = "problem" } = endpoint;
    response = refuse(error, requestId, { errors, logger: context.logger, act: endpoint.act });
  } finally {
    room.release();
  }
  const { method, path } = endpoint;
  metrics.requests.add(1, { method, path, status: String(response.status) });
  metrics.duration.observe((clock.now() - startedAtMs) / 1000, { path });
  return response;
}

function toResponse(answered: Answer, requestId: string): Response {
  const { status, body, stream = null, headers = {} } = answered;
  if (body === undefined) {
    return new Response(stream, { status, headers: { ...headers, "x-request-id": requestId } });
  }
  return new Response(writeJson(body), {
    status,
    headers: { "content-type": "application/json", ...headers, "x-request-id": requestId },
  });
}

export interface RefuseOptions {
  readonly errors: ErrorStyle;
  readonly logger: Logger;
  /** What was asked for. */
  readonly act?: string;
}

/** Tells the caller what it may know, and the log the rest. */
export function refuse(
  error: unknown,
  requestId: string,
  { errors, logger, act = "" }: RefuseOptions,
): Response {
  const problem = toProblem(error);
  if (problem.isHidden) logHidden(problem, error, requestId, logger);
  const { status, code, title, detail, headers } = problem;
  const [type, body] =
    errors === "codeq"
      ? ["application/json", codeqBody(problem, act)]
      : [
          "application/problem+json",
          { type: problemType(code), title, status, code, detail, requestId },
        ];
  return new Response(writeJson(body), {
    status,
    headers: { ...headers, "content-type": type, "x-request-id": requestId },
  });
}

/** As its clients know it: of what was too much, also when to come back. */
function codeqBody({ detail = "internal error", status, headers }: Problem, act: string): object {
  if (status !== 429) return { error: detail };
  const isCreate = act === "task.create";
  const operation = isCreate ? "create_task" : act.slice(act.indexOf(".") + 1);
  const scope = isCreate ? "producer" : act.startsWith("task.") ? "worker" : "admin";
  return { error: detail, scope, operation, retryAfterSeconds: Number(headers["retry-after"]) };
}

function logHidden(problem: Problem, error: unknown, requestId: string, logger: Logger): void {
  const stack = error instanceof Error ? error.stack : undefined;
  const fields = { requestId, code: problem.code, error: messageOf(error), stack };
  if (problem.status === 500) logger.error(fields, "a request failed");
  else logger.warn(fields, "a request was refused for a reason that is not told");
}
