import { lookup } from "node:dns/promises";

/** All addresses of a host name, as texts. */
export type Resolver = (hostname: string) => Promise<readonly string[]>;

/** As the system does it, with its hosts file and search domains. */
export async function lookupAll(hostname: string): Promise<readonly string[]> {
  const found = await lookup(hostname, { all: true });
  return found.map(({ address }) => address);
}
