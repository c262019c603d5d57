const KEY = "tidemill-token";

/** Of this tab, until it is closed. Never in an address, which others get to see. */
export const readToken = (): string => sessionStorage.getItem(KEY) ?? "";

export function keepToken(token: string): void {
  if (token === "") sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, token);
}
