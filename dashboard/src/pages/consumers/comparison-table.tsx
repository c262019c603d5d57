import type { ComparedTable, Comparison } from "../../api/types.ts";
import { formatCount } from "../../format.ts";
import { Code, Scroller } from "../../ui/panel.tsx";

/** What differs between the live tables and the rebuilt ones. */
export function ComparisonTable({ comparison }: { comparison: Comparison }) {
  const { position, isSame, tables } = comparison;
  return (
    <div className="mt-4 flex flex-col gap-3 border-t border-line pt-4">
      <h3 className="font-semibold">
        At position {formatCount(position)} both sides are {isSame ? "the same" : "not the same"}
      </h3>
      <Scroller label="Comparison">
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Table</th>
              {["Live rows", "Rebuilt rows", "Missing", "Extra", "Different"].map((head) => (
                <th key={head} scope="col" className="num">
                  {head}
                </th>
              ))}
              <th scope="col">Compared</th>
            </tr>
          </thead>
          <tbody>
            {tables.map((table) => (
              <tr key={table.table}>
                <td>{table.table}</td>
                {numbersOf(table).map(([name, count]) => (
                  <td key={name} className="num">
                    {formatCount(count)}
                  </td>
                ))}
                <td>{table.compared}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroller>
      {tables.flatMap(({ table, examples }) =>
        examples.map(({ kind, key, live, rebuilt }) => (
          <div key={`${table}-${kind}-${key}`}>
            <p className="mb-1">
              {kind} in {table}: {key}
            </p>
            <Code label={`${kind} ${key}`}>
              {[
                ...(live === undefined ? [] : [`live     ${live}`]),
                ...(rebuilt === undefined ? [] : [`rebuilt  ${rebuilt}`]),
              ].join("\n")}
            </Code>
          </div>
        )),
      )}
    </div>
  );
}

const numbersOf = (table: ComparedTable): readonly (readonly [string, number])[] => [
  ["live", table.liveRows],
  ["rebuilt", table.rebuiltRows],
  ["missing", table.missing],
  ["extra", table.extra],
  ["different", table.different],
];
