/** Of all clients of a benchmark, on a server that nobody else reaches. */
export const TOKEN = "bench-token-0123456789";
export const WATCHED = "watched";
