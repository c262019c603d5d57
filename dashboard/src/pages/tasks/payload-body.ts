/** JSON goes as it was typed: numbers of twenty digits would not survive being read here. */
export function bodyOf(text: string, isBytes: boolean, contentType: string): string {
  if (isBytes) return JSON.stringify({ payloadBase64: text.trim(), contentType });
  try {
    JSON.parse(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : "";
    throw new Error(`This is not JSON: ${why}`, { cause: error });
  }
  return `{"payload":${text}}`;
}
