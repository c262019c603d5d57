/** The trace that something belongs to, in the form of the W3C headers. */
export interface TraceContext {
  readonly traceParent?: string | undefined;
  readonly traceState?: string | undefined;
}

const TRACE_PARENT =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{1,200})?$/;
const TRACE_STATE = /^[ -~]{1,512}$/;

/**
 * What headers say of a trace; nothing where they make no sense. Whoever sends them is not refused:
 * a trace is for people who look, and no part of the work.
 */
export function readTrace(traceParent: unknown, traceState: unknown): TraceContext {
  if (typeof traceParent !== "string" || !TRACE_PARENT.test(traceParent)) return {};
  const hasState = typeof traceState === "string" && TRACE_STATE.test(traceState);
  return hasState ? { traceParent, traceState } : { traceParent };
}

/**
 * What `@opentelemetry/api` 1.x registers, under a name that all of its versions share. Found there
 * instead of imported: who has no telemetry needs no package of it, and who has uses their own.
 */
interface Telemetry {
  readonly context?: {
    active(): unknown;
    with<T>(context: unknown, work: () => T): T;
  };
  readonly propagation?: {
    inject(context: unknown, carrier: Carrier, setter: object): void;
    extract(context: unknown, carrier: Carrier, getter: object): unknown;
  };
}

type Carrier = Record<string, string>;

const GLOBAL = Symbol.for("opentelemetry.js.api.1");
const SETTER = {
  set: (carrier: Carrier, name: string, value: string): void => {
    carrier[name] = value;
  },
};
const GETTER = {
  keys: (carrier: Carrier): string[] => Object.keys(carrier),
  get: (carrier: Carrier, name: string): string | undefined => carrier[name],
};

const telemetry = (): Telemetry | undefined =>
  Reflect.get(globalThis, GLOBAL) as Telemetry | undefined;

/** Whether OpenTelemetry is set up: who has none need not look for a trace. */
export const isTracing = (): boolean => telemetry() !== undefined;

/** The trace of the caller, where OpenTelemetry is set up in this process; else nothing. */
export function activeTrace(): TraceContext {
  const { context, propagation } = telemetry() ?? {};
  if (context === undefined || propagation === undefined) return {};
  const carrier: Carrier = {};
  try {
    propagation.inject(context.active(), carrier, SETTER);
  } catch {
    return {}; // Somebody else's propagator must not keep a task from being stored.
  }
  return readTrace(carrier["traceparent"], carrier["tracestate"]);
}

/** Runs `work` in that trace, where OpenTelemetry is set up in this process; else as it is. */
export function inTrace<T>({ traceParent, traceState }: TraceContext, work: () => T): T {
  const { context, propagation } = telemetry() ?? {};
  if (traceParent === undefined || context === undefined || propagation === undefined) {
    return work();
  }
  const carrier: Carrier = { traceparent: traceParent };
  if (traceState !== undefined) carrier["tracestate"] = traceState;
  let found: unknown;
  try {
    found = propagation.extract(context.active(), carrier, GETTER);
  } catch {
    return work(); // As above.
  }
  return context.with(found, work);
}
