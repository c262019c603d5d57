import { vi } from "vitest";
import { Database } from "../../../src/db/database.ts";

/** Every way in which a statement names its tenant, and what is left when it forgets. */
const CLAUSES: readonly [clause: RegExp, without: string][] = [
  [/\(\$(\d+)::text IS NULL OR ((?:\w+\.)?)tenant = \$\1\)/g, "($$$1::text IS NULL OR TRUE)"],
  [/\$(\d+)::text IS NULL OR task\.tenant = \$\1/g, "$$$1::text IS NULL OR TRUE"],
  [/((?:\w+\.)?)tenant = COALESCE\(\$(\d+), (?:\w+\.)?tenant\)/g, "($$$2::text IS NULL OR TRUE)"],
  [/\w+\.tenant = given\.tenant\b/g, "TRUE"],
  [/\w+\.tenant = \$(\d+)\b/g, "($$$1::text IS NULL OR TRUE)"],
  [/(?<![\w.])tenant = \$(\d+)\b/g, "($$$1::text IS NULL OR TRUE)"],
];

function forgetful(text: string): string {
  return CLAUSES.reduce((left, [clause, without]) => left.replace(clause, without), text);
}

/** The statements that were sent while `work` ran, those named without their tenant. */
export async function withoutClause(
  names: readonly string[],
  work: () => Promise<void>,
): Promise<Set<string>> {
  const sent = new Set<string>();
  const original = Reflect.get(Database.prototype, "toQuery");
  vi.spyOn(Database.prototype, "toQuery").mockImplementation(function (
    this: Database,
    statement,
    values,
  ) {
    const query = original.call(this, statement, values);
    if (forgetful(query.text) === query.text) return query;
    sent.add(statement.name);
    if (!names.includes(statement.name)) return query;
    return { text: forgetful(query.text), values: query.values ?? [] };
  });
  await work();
  vi.restoreAllMocks();
  return sent;
}
