interface Reading {
  begin(): Promise<void>;
}

/**
 * Reads one thing at a time, and lets tenants take turns: however many clients of one go back
 * however far, those of another wait for no more than one read of each.
 */
export class ReadTurns {
  /** Those whose turn comes first are first. */
  readonly #waiting = new Map<string, Reading[]>();
  #isReading = false;

  /** Resolves, or rejects, as `read` does when it is its turn. */
  take<T>(tenant: string, read: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const begin = (): Promise<void> => read().then(resolve, reject);
      const line = this.#waiting.get(tenant);
      if (line === undefined) this.#waiting.set(tenant, [{ begin }]);
      else line.push({ begin });
      void this.#readAll();
    });
  }

  async #readAll(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    for (let next = this.#next(); next !== undefined; next = this.#next()) await next.begin();
    this.#isReading = false;
  }

  #next(): Reading | undefined {
    for (const [tenant, line] of this.#waiting) {
      const first = line.shift();
      this.#waiting.delete(tenant);
      if (line.length > 0) this.#waiting.set(tenant, line); // Behind the others.
      return first;
    }
    return undefined;
  }
}
