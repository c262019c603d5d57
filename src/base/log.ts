/** The part of pino's interface that the runtime uses; any structured logger fits. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = (): void => {};

/** The default: a library does not write to its host's output unasked. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** Adds fixed fields to every line. */
export function childLogger(parent: Logger, bound: object): Logger {
  return {
    debug: (fields, message) => parent.debug({ ...bound, ...fields }, message),
    info: (fields, message) => parent.info({ ...bound, ...fields }, message),
    warn: (fields, message) => parent.warn({ ...bound, ...fields }, message),
    error: (fields, message) => parent.error({ ...bound, ...fields }, message),
  };
}
