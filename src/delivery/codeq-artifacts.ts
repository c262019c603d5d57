/** Something that a worker of CodeQ's made beside its result. */
export interface Artifact {
  readonly name: string;
  /** Where it is; of one that came with the result, a `data:` URL with all of it. */
  readonly url: string;
}

/** What such a worker said: the result letter by letter, and its artifacts. */
export interface CodeqResult {
  /** Undefined: there is none. */
  readonly result: string | undefined;
  readonly artifacts: readonly Artifact[];
}

/*
 * A task has one result, so artifacts are kept in it: durable with the end of the task, and gone
 * with it. Whoever is not a client of CodeQ's gets the object that is written here.
 */
const MEMBER = "$artifacts";

const headOf = (artifacts: readonly Artifact[]): string =>
  `{${JSON.stringify(MEMBER)}:${JSON.stringify(artifacts)},"result":`;

/** The text to store. A result without artifacts is stored as it is. */
export function joinArtifacts({ result, artifacts }: CodeqResult): string | undefined {
  return artifacts.length === 0 ? result : `${headOf(artifacts)}${result ?? "null"}}`;
}

/** What was joined. Any other text is a result without artifacts. */
export function splitArtifacts(stored: string | null | undefined): CodeqResult {
  const plain = { result: stored ?? undefined, artifacts: [] };
  if (!stored?.startsWith(`{${JSON.stringify(MEMBER)}:[`)) return plain;
  const artifacts = artifactsIn(stored);
  if (artifacts === undefined) return plain;
  const head = headOf(artifacts);
  // Not written here, if it reads otherwise.
  if (!stored.startsWith(head)) return plain;
  return { result: stored.slice(head.length, -1), artifacts };
}

function artifactsIn(stored: string): Artifact[] | undefined {
  let parsed: Readonly<Record<string, unknown>>;
  try {
    parsed = JSON.parse(stored) as typeof parsed;
  } catch {
    return undefined;
  }
  const isOurs = Object.keys(parsed).join() === `${MEMBER},result`;
  const given: unknown = parsed[MEMBER];
  if (!isOurs || !Array.isArray(given)) return undefined;
  return given.every(isArtifact) ? given : undefined;
}

function isArtifact(value: unknown): value is Artifact {
  if (typeof value !== "object" || value === null) return false;
  const { name, url } = value as Partial<Artifact>;
  return typeof name === "string" && typeof url === "string";
}
