import { describe, expect, it } from "vitest";
import { consumer } from "../consumer.ts";
import { rebuiltConsumer } from "./names.ts";
import { isSameDeclaration, spellTable } from "./target.ts";

const view = consumer("view", { tables: ["order_view", "shop.lines"], handle: () => {} });

describe("declared tables", () => {
  it("are spelled with the schema they were declared with, or that of the copies", () => {
    expect(spellTable(view, "order_view", undefined)).toBe('"order_view"');
    expect(spellTable(view, "lines", undefined)).toBe('"shop"."lines"');
    expect(spellTable(view, "shop.lines", "copies")).toBe('"copies"."lines"');
    expect(() => spellTable(view, "other.lines", undefined)).toThrow(
      'consumer view does not declare table "other.lines"',
    );
  });

  it.each([
    [[], "must be a list of 1 to 100 names"],
    ["order_view", "must be a list"],
    [["a.b.c"], "is not a table name"],
    [["a; DROP TABLE b"], "is not a usable SQL name"],
    [["orders", "archive.orders"], 'name "orders" twice'],
  ])("are refused: %j", (tables, message) => {
    const options = { tables: tables as string[], handle: () => {} };
    expect(() => consumer("view", options)).toThrow(message);
  });

  it("are the same in any order, and not with another one", () => {
    const target = { id: "1", consumer: "view", schema: "copies" };
    const declared = ["shop.lines", "order_view"];
    expect(isSameDeclaration(view.tables ?? [], { ...target, declared })).toBe(true);
    const fewer = { ...target, declared: ["order_view"] };
    expect(isSameDeclaration(view.tables ?? [], fewer)).toBe(false);
  });
});

describe("the name of a rebuild", () => {
  it("belongs to no consumer, and tells whose it is", () => {
    expect(() => consumer("view~rebuild", { handle: () => {} })).toThrow("rebuilds do");
    expect(rebuiltConsumer("view~rebuild/12")).toBe("view");
    expect(rebuiltConsumer("view~rebuild")).toBe("view");
    expect(rebuiltConsumer("view/12")).toBeUndefined();
  });
});
