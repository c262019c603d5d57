import fc from "fast-check";

/** As much of JSON Schema as descriptions of HTTP calls need. */
export interface JsonSchema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

export interface SchemaContext {
  /** What `$ref` names. */
  readonly schemas: Readonly<Record<string, JsonSchema>>;
  /** Members that mean more than their schema says, by their name: its values instead. */
  readonly members: Readonly<Record<string, fc.Arbitrary<unknown>>>;
}

type Values = fc.Arbitrary<unknown>;

const ABSENT = Symbol("absent");
const LENGTH_MAX = 20;
const ITEMS_MAX = 3;
const SPAN = 100;
/** How often a member is left out that may be, for each time that it is there. */
const ABSENCE = 4;

const PRESENT = { min: new Date(0), max: new Date("2999-01-01"), noInvalidDate: true };
const EDGES_OF_TIME = fc.constantFrom("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999-14:00");

/** Values that the schema allows; whether they make sense is for whoever gets them. */
export function valuesOf(schema: JsonSchema, context: SchemaContext): Values {
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    const found = context.schemas[name];
    if (found === undefined) throw new Error(`there is no schema ${schema.$ref}`);
    return valuesOf(found, context);
  }
  const { anyOf = [], oneOf = [], allOf = [] } = schema;
  const either = [...anyOf, ...oneOf];
  if (either.length > 0) return fc.oneof(...either.map((one) => valuesOf(one, context)));
  if (allOf.length > 0) return together(allOf, context);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.const !== undefined) return fc.constant(schema.const);
  const types = typeof schema.type === "string" ? [schema.type] : (schema.type ?? ["any"]);
  return fc.oneof(...types.map((type) => valuesOfType(type, schema, context)));
}

function together(parts: readonly JsonSchema[], context: SchemaContext): Values {
  const all = fc.tuple(...parts.map((part) => valuesOf(part, context)));
  return all.map((values) => Object.assign({}, ...values) as unknown);
}

function valuesOfType(type: string, schema: JsonSchema, context: SchemaContext): Values {
  switch (type) {
    case "object":
      return objectsOf(schema, context);
    case "array": {
      const { minItems = 0, maxItems = ITEMS_MAX } = schema;
      const maxLength = Math.max(minItems, Math.min(maxItems, ITEMS_MAX));
      return fc.array(valuesOf(schema.items ?? {}, context), { minLength: minItems, maxLength });
    }
    case "string":
      return textsOf(schema);
    case "integer":
    case "number":
      return numbersOf(schema, type === "integer");
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    default:
      return fc.jsonValue({ maxDepth: 2 });
  }
}

function objectsOf(schema: JsonSchema, context: SchemaContext): Values {
  const { properties = {}, required = [], additionalProperties: more } = schema;
  const entries = Object.entries(properties).map(([name, one]) => {
    const values = context.members[name] ?? valuesOf(one, context);
    const absent = { weight: ABSENCE, arbitrary: fc.constant(ABSENT) };
    const some = required.includes(name)
      ? values
      : fc.oneof(absent, { weight: 1, arbitrary: values });
    return fc.tuple(fc.constant(name), some);
  });
  const others =
    typeof more === "object" && Object.keys(properties).length === 0
      ? fc.dictionary(fc.string({ minLength: 1, maxLength: 10 }), valuesOf(more, context), {
          maxKeys: ITEMS_MAX,
        })
      : fc.constant({});
  return fc.tuple(others, ...entries).map(([added, ...given]) => ({
    ...added,
    ...Object.fromEntries(given.filter(([, value]) => value !== ABSENT)),
  }));
}

function textsOf(schema: JsonSchema): Values {
  const { format, pattern, minLength = 0, maxLength = LENGTH_MAX } = schema;
  if (format === "uuid") return fc.uuid();
  if (format === "date-time") return fc.oneof(fc.date(PRESENT).map(toText), EDGES_OF_TIME);
  if (format === "byte") return fc.uint8Array({ maxLength: 20 }).map(toBase64);
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  const length = { minLength, maxLength: Math.max(minLength, Math.min(maxLength, LENGTH_MAX)) };
  const longest = fc.constant("x".repeat(schema.maxLength ?? 1_000));
  return fc.oneof(
    { weight: 6, arbitrary: fc.string(length) },
    { weight: 1, arbitrary: fc.string({ ...length, unit: "binary" }) },
    { weight: 1, arbitrary: longest },
  );
}

const toText = (date: Date): string => date.toISOString();

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

function numbersOf(schema: JsonSchema, isWhole: boolean): Values {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  const step = isWhole ? 1 : 0.001;
  const min = minimum ?? (exclusiveMinimum === undefined ? 0 : exclusiveMinimum + step);
  const max = maximum ?? (exclusiveMaximum === undefined ? undefined : exclusiveMaximum - step);
  const near = Math.min(max ?? min + SPAN, min + SPAN);
  const whole = fc.integer({ min: Math.ceil(min), max: Math.floor(near) });
  const edges = [min, max ?? Number.MAX_SAFE_INTEGER, ...(max === undefined ? [2 ** 31] : [])];
  return fc.oneof(
    {
      weight: 6,
      arbitrary: isWhole ? whole : fc.oneof(whole, fc.double({ min, max: near, noNaN: true })),
    },
    { weight: 1, arbitrary: fc.constantFrom(...edges) },
  );
}
