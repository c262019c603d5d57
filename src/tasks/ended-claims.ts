/**
 * Claims all of whose tasks have ended: their rows in the ledger go along with the next statement
 * that completes anything. Whichever that is, they stay here until it was answered.
 */
export class EndedClaims {
  readonly #ids = new Set<string>();

  get size(): number {
    return this.#ids.size;
  }

  add(claimId: string): void {
    this.#ids.add(claimId);
  }

  /** To be sent. */
  all(): string[] {
    return [...this.#ids];
  }

  forget(claimIds: readonly string[]): void {
    for (const id of claimIds) this.#ids.delete(id);
  }
}
