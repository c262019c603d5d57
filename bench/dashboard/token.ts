/** Of whoever looks at the dashboard of a benchmark, on a server that nobody else reaches. */
export const TOKEN = "token-of-a-bench-0123456789";
