import type { Edit } from "./mutant.ts";

/** The file as the edit leaves it. */
export function applyEdit(text: string, { file, find, replace }: Edit): string {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`${file} has this ${parts.length - 1} times instead of once:\n${find}`);
  }
  return parts.join(replace);
}

/** The files that the edits change, by name. Several edits of one file build on each other. */
export function applyEdits(
  edits: readonly Edit[],
  read: (file: string) => string,
): Map<string, string> {
  const texts = new Map<string, string>();
  for (const edit of edits) {
    texts.set(edit.file, applyEdit(texts.get(edit.file) ?? read(edit.file), edit));
  }
  return texts;
}
