/** Of all streams of a benchmark, on a server that nobody else reaches. */
export const TOKEN = "bench-token-0123456789";
export const QUEUE = "bench";
/** By HTTP, of the one tenant there is: no limit that anybody meets. */
export const CALLS_PER_SECOND = 1_000_000;
/** Connections of the producer by HTTP, and as many of the worker; each has one call under way. */
export const CONNECTIONS = 16;
/**
 * Of both clients. A stream that breaks ends the benchmark, so nothing is kept to be sent again;
 * and as far as the connection is concerned many messages may be on their way.
 */
export const CHANNEL_OPTIONS = {
  "grpc.enable_retries": 0,
  "grpc-node.flow_control_window": 1024 * 1024,
};
