import { type DestinationStream, pino } from "pino";
import type { Logger } from "../../base/log.ts";
import type { Redactor } from "./redactor.ts";
import type { LogLevel } from "./settings.ts";

export interface LogTarget {
  /** In every line. */
  readonly fields?: object;
  /** Defaults to standard output. */
  readonly destination?: DestinationStream;
}

/**
 * One JSON object per line on standard output, written before the call returns: what was logged is
 * there when the process dies. Secrets are taken out of every line.
 */
export function serveLogger(
  level: LogLevel,
  redactor: Redactor,
  { fields = {}, destination = pino.destination({ fd: 1, sync: true }) }: LogTarget = {},
): Logger {
  const log = pino(
    {
      level,
      base: { ...fields },
      messageKey: "message",
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: {}, // Fields are plain already.
    },
    destination,
  );
  const at =
    (name: LogLevel) =>
    (fields: object, message: string): void => {
      if (!log.isLevelEnabled(name)) return;
      log[name](redactor.fields(fields), redactor.text(message));
    };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
