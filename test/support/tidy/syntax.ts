import { parseAst } from "vitest/node";
import { placeOf, textOf } from "./repository.ts";

/** A node of the syntax tree; which fields it has depends on its type. */
export interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const trees = new Map<string, readonly Node[]>();

/** Every node of a TypeScript file, parents before their children. */
export function nodesOf(file: string): readonly Node[] {
  let nodes = trees.get(file);
  if (nodes === undefined) {
    const found: Node[] = [];
    collect(parseAst(textOf(file), { lang: "ts" }) as unknown as Node, found);
    nodes = found;
    trees.set(file, nodes);
  }
  return nodes;
}

function collect(node: Node, into: Node[]): void {
  into.push(node);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (isNode(child)) collect(child, into);
    }
  }
}

/** Statements that are not inside another. */
export function topLevelOf(file: string): Node[] {
  const body = nodesOf(file)[0]?.["body"];
  return Array.isArray(body) ? body.filter(isNode) : [];
}

export function isReExport(node: Node): boolean {
  return node.type.startsWith("Export") && isNode(node["source"]);
}

export function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}

export function codeOf(file: string, node: Node): string {
  return textOf(file).slice(node.start, node.end);
}

/** Places of the nodes that a rule does not want. */
export function findNodes(
  files: readonly string[],
  isUnwanted: (node: Node, file: string) => boolean,
): string[] {
  return files.flatMap((file) =>
    nodesOf(file)
      .filter((node) => isUnwanted(node, file))
      .map((node) => `${placeOf(file, node.start)}: ${firstLine(codeOf(file, node))}`),
  );
}

function firstLine(code: string): string {
  const [line = ""] = code.split("\n");
  return line.length > 70 ? `${line.slice(0, 70)}…` : line;
}

/** Whether the node is `object.property`, such as `Date.now`. */
export function isMember(node: Node, object: string, property: string): boolean {
  if (node.type !== "MemberExpression" || node["computed"] === true) return false;
  return nameOf(node["object"]) === object && nameOf(node["property"]) === property;
}

export function nameOf(node: unknown): string | undefined {
  return isNode(node) && node.type === "Identifier" ? String(node["name"]) : undefined;
}

/** Whether the node calls a function of that name, however it is reached. */
export function isCallOf(node: Node, name: string): boolean {
  if (node.type !== "CallExpression") return false;
  const callee = node["callee"];
  if (!isNode(callee)) return false;
  return nameOf(callee) === name || nameOf(callee["property"]) === name;
}

export function argumentsOf(node: Node): Node[] {
  return Array.isArray(node["arguments"]) ? node["arguments"].filter(isNode) : [];
}

export interface TextLiteral {
  readonly file: string;
  readonly start: number;
  readonly value: string;
}

/** Strings and templates; an expression inside a template appears as `${}`. */
export function textLiterals(files: readonly string[]): TextLiteral[] {
  return files.flatMap((file) =>
    nodesOf(file).flatMap((node) => {
      const value = literalText(node);
      return value === undefined ? [] : [{ file, start: node.start, value }];
    }),
  );
}

export function literalText(node: Node): string | undefined {
  if (node.type === "Literal" && typeof node["value"] === "string") return node["value"];
  if (node.type !== "TemplateLiteral" || !Array.isArray(node["quasis"])) return undefined;
  return node["quasis"].map((part: { value: { raw: string } }) => part.value.raw).join("${}");
}

/** Names of the properties of an exported interface. */
export function propertiesOf(file: string, name: string): string[] {
  const found = nodesOf(file).find(
    (node) => node.type === "TSInterfaceDeclaration" && nameOf(node["id"]) === name,
  );
  if (found === undefined) throw new Error(`${file} has no interface ${name}`);
  const { body } = found["body"] as { body: Node[] };
  return body.flatMap((member) => nameOf(member["key"]) ?? []);
}
