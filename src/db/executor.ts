/**
 * What we need of a transaction that the caller owns: node-postgres clients fit as they are.
 */
export interface SqlExecutor {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}
