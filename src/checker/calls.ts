import type { Ledger } from "./facts.ts";
import type { Finding } from "./rule.ts";

/* Holds of enqueues and of appends alike. One call is one transaction: all of it or nothing. */

type Named = { readonly name: string };

/** What the system promised and does not have, or has elsewhere. */
export function* lost<Fact extends Named>(ledger: Ledger<Fact>): Generator<Finding> {
  const { noun, items, again, idOf } = ledger;
  const others = new Set(again.map((fact) => `${idOf(fact)} ${fact.name}`));
  for (const { name, call, told, fact } of items.values()) {
    if (call?.what.phase !== "ok") continue;
    if (fact !== undefined && (told === undefined || told === idOf(fact))) continue;
    if (others.has(`${told} ${name}`)) continue;
    const promise = told === undefined ? "was promised" : `was told to be ${told}`;
    const truth = fact === undefined ? "is not there" : `is ${idOf(fact)}`;
    const slice = fact === undefined ? [call] : [call, fact];
    yield { message: `${noun} ${name} ${promise} and ${truth}`, slice };
  }
}

/** What nobody asked for, or whose caller was told that nothing is there. */
export function* unexpected<Fact extends Named>(ledger: Ledger<Fact>): Generator<Finding> {
  const { noun, items, idOf } = ledger;
  for (const { name, call, fact } of items.values()) {
    if (fact === undefined) continue;
    if (call === undefined) {
      yield { message: `nobody asked for ${noun} ${idOf(fact)} (${name})`, slice: [fact] };
    } else if (call.what.phase === "fail") {
      const message = `the call of ${noun} ${idOf(fact)} (${name}) failed, and it is there`;
      yield { message, slice: [call, fact] };
    }
  }
}

/** Calls of which a part is there. Of what was promised, what is missing is lost instead. */
export function* torn<Fact extends Named>(ledger: Ledger<Fact>): Generator<Finding> {
  const { noun, items, calls } = ledger;
  for (const call of calls) {
    const { phase, names } = call.what;
    if (phase !== "unknown") continue;
    const found = names.flatMap((name) => items.get(name)?.fact ?? []);
    if (found.length === 0 || found.length === names.length) continue;
    const message = `${found.length} of the ${names.length} ${noun}s of one call are there`;
    yield { message, slice: [call, ...found] };
  }
}

/** One name that became two. */
export function* doubled<Fact extends Named>(ledger: Ledger<Fact>): Generator<Finding> {
  const { noun, items, again, idOf } = ledger;
  for (const fact of again) {
    const item = items.get(fact.name);
    const first = item?.fact;
    if (first === undefined || idOf(first) === idOf(fact)) continue;
    const message = `${fact.name} is ${noun} ${idOf(first)} and ${noun} ${idOf(fact)}`;
    yield { message, slice: item?.call === undefined ? [first, fact] : [item.call, first, fact] };
  }
}
