import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MUST_PASS, MUST_REFUSE, resolveNames } from "../../../test/support/egress-targets.ts";
import { parseAddress } from "./address.ts";
import { EgressRefusedError } from "./errors.ts";
import { type EgressOptions, resolveEgressOptions } from "./options.ts";
import { readTarget, refuseDenied } from "./target.ts";

const RULES = resolveEgressOptions({ allowHttp: true, ports: [80, 443, 8443] });

/** As the guard judges: first the text, then everything that the name resolves to. */
async function verdict(url: string, rules = RULES): Promise<string> {
  try {
    const target = readTarget(url, rules);
    if (target.literal !== undefined) return "pass";
    for (const text of await resolveNames(target.hostname)) {
      const address = parseAddress(text);
      if (address === undefined) return "address";
      refuseDenied(address, target, rules);
    }
    return "pass";
  } catch (error) {
    if (error instanceof EgressRefusedError) return error.reason;
    throw error;
  }
}

const withOptions = (options: EgressOptions): Promise<string>[] =>
  (options.allowHosts ?? []).map((name) =>
    verdict(`https://${name}/`, resolveEgressOptions(options)),
  );

describe("a target", () => {
  it.each(MUST_REFUSE)("%j is refused for its %s", async (url, reason) => {
    expect(await verdict(url)).toBe(reason);
  });

  it.each(MUST_PASS)("%j passes", async (url) => {
    expect(await verdict(url)).toBe("pass");
  });

  it("must be https unless http is allowed", async () => {
    const strict = resolveEgressOptions();
    expect(await verdict("http://example.com/", strict)).toBe("scheme");
    expect(await verdict("https://example.com/", strict)).toBe("pass");
    expect(await verdict("https://example.com:80/", strict)).toBe("port");
    expect(await verdict("https://example.com:8443/", strict)).toBe("port");
    const plain = resolveEgressOptions({ allowHttp: true });
    expect(await verdict("http://example.com/", plain)).toBe("pass");
    expect(await verdict("https://example.com/", plain)).toBe("pass");
  });

  it("has one form: what is sent is what was judged", () => {
    expect(readTarget("HTTPS://EXAMPLE.com.:443/a/../b c?d#e".replace(" ", "%20"), RULES)).toEqual({
      href: "https://example.com/b%20c?d",
      origin: "https://example.com",
      isTls: true,
      hostname: "example.com",
      port: 443,
      path: "/b%20c?d",
      host: "example.com",
      isHostAllowed: false,
      literal: undefined,
    });
    const mapped = readTarget("https://[::FFFF:93.184.216.34]:8443/", RULES);
    expect(mapped).toMatchObject({
      host: "[::ffff:5db8:d822]:8443",
      literal: parseAddress("93.184.216.34"),
    });
  });

  it("is judged alike however often it is normalised", async () => {
    const urls = [...MUST_PASS, ...MUST_REFUSE.map(([url]) => url)];
    for (const url of urls) {
      if (!URL.canParse(url) || (await verdict(url)) === "url") continue;
      expect(await verdict(new URL(url).href), url).toBe(await verdict(url));
    }
    const unit = fc.constantFrom(...Array.from("abcXYZ019-_äß１①ⓐ。．%"));
    const label = fc.string({ unit, minLength: 1, maxLength: 6 });
    const name = fc.array(label, { minLength: 2, maxLength: 4 }).map((labels) => labels.join("."));
    const hosts = fc.oneof(name, fc.ipV4Extended(), fc.ipV6().map(bracketed));
    const path = fc.string({ unit: "binary", maxLength: 12 });
    fc.assert(
      fc.property(hosts, path, (host, rest) => {
        const once = read(`https://${host}/${rest}`);
        if (typeof once === "string") return;
        expect(read(once.href)).toEqual(once);
      }),
      { numRuns: 300 },
    );
  });

  it("does not tell in its message where a name leads", async () => {
    const target = readTarget("https://private.example.com/hook?token=s3cret", RULES);
    const address = parseAddress("10.1.2.3");
    const refuse = (): void => {
      if (address !== undefined) refuseDenied(address, target, RULES);
    };
    expect(refuse).toThrow(
      "https://private.example.com leads to an address that is private, and only public ones " +
        "are called; allowHosts or allowCidrs can allow it",
    );
    expect(refuse).toThrow(expect.objectContaining({ address: "10.1.2.3", retryable: false }));
  });
});

function read(url: string): ReturnType<typeof readTarget> | string {
  try {
    return readTarget(url, RULES);
  } catch (error) {
    if (error instanceof EgressRefusedError) return error.reason;
    throw error;
  }
}

const bracketed = (text: string): string => `[${text}]`;

describe("the operator's list", () => {
  it("lets names of the own network through, whatever their case and dots", async () => {
    const rules = resolveEgressOptions({ allowHosts: ["Vault.Internal.", "*.example.com"] });
    expect(await verdict("https://vault.internal/", rules)).toBe("pass");
    expect(await verdict("https://VAULT.internal./", rules)).toBe("pass");
    expect(await verdict("https://private.example.com/", rules)).toBe("pass");
    expect(await verdict("https://mapped.example.com/", rules)).toBe("pass");
    expect(await verdict("https://other.internal.localhost/", rules)).toBe("host");
  });

  it("takes a name without a dot, and localhost", async () => {
    expect(await Promise.all(withOptions({ allowHosts: ["postgres", "localhost"] }))).toEqual([
      "pass",
      "pass",
    ]);
  });

  it("does not take a name for the names below it, nor the reverse", async () => {
    const rules = resolveEgressOptions({ allowHosts: ["localhost", "*.internal"] });
    expect(await verdict("https://a.localhost/", rules)).toBe("host");
    expect(await verdict("https://internal/", rules)).toBe("host");
    expect(await verdict("https://vaultinternal/", rules)).toBe("host");
  });

  it("does not open an address by the name of another", async () => {
    const rules = resolveEgressOptions({ allowHosts: ["vault.internal"] });
    expect(await verdict("https://private.example.com/", rules)).toBe("address");
    expect(await verdict("https://[fd12:3456::1]/", rules)).toBe("address");
  });

  it("opens blocks under any name that is one", async () => {
    const rules = resolveEgressOptions({ allowCidrs: ["10.1.0.0/16", "127.0.0.1"] });
    expect(await verdict("https://10.1.255.255/", rules)).toBe("pass");
    expect(await verdict("https://10.2.0.0/", rules)).toBe("address");
    expect(await verdict("https://private.example.com/", rules)).toBe("pass");
    expect(await verdict("https://mapped.example.com/", rules)).toBe("pass");
    expect(await verdict("https://mixed.example.com/", rules)).toBe("address");
    expect(await verdict("https://localhost/", rules)).toBe("host");
  });

  it("never opens metadata services, multicast or nowhere", async () => {
    const rules = resolveEgressOptions({
      allowHosts: ["*.example.com", "metadata.google.internal"],
      allowCidrs: ["0.0.0.0/0", "::/0"],
    });
    for (const host of [
      "169.254.169.254",
      "169.254.170.2",
      "100.100.100.200",
      "168.63.129.16",
      "[fd00:ec2::254]",
      "[fd20:ce::254]",
      "[64:ff9b::a9fe:a9fe]",
      "[2002:a9fe:a9fe::]",
      "[::169.254.169.254]",
      "nat64.example.com",
      "0.0.0.0",
      "224.0.0.1",
      "255.255.255.255",
      "[::]",
      "[ff02::1]",
    ]) {
      expect(await verdict(`https://${host}/`, rules), host).toBe("address");
    }
  });

  it("judges what a translated address stands for", async () => {
    const rules = resolveEgressOptions({ allowCidrs: ["64:ff9b::/96", "2002::/16", "2001::/32"] });
    expect(await verdict("https://[64:ff9b::93.184.216.34]/", rules)).toBe("pass");
    expect(await verdict("https://[64:ff9b::10.0.0.1]/", rules)).toBe("address");
    const local = resolveEgressOptions({ allowCidrs: ["64:ff9b:1::/48"] });
    expect(await verdict("https://[64:ff9b:1:abcd::93.184.216.34]/", local)).toBe("pass");
    expect(await verdict("https://[64:ff9b:1:abcd::10.0.0.1]/", local)).toBe("address");
    expect(await verdict("https://[2002:5db8:d822::1]/", rules)).toBe("pass");
    expect(await verdict("https://[2002:7f00:1::1]/", rules)).toBe("address");
    // Teredo: the server in front, the client with every bit turned at the end.
    expect(await verdict("https://[2001:0:5db8:d822::a247:27dd]/", rules)).toBe("pass");
    expect(await verdict("https://[2001:0:7f00:1::a247:27dd]/", rules)).toBe("address");
    expect(await verdict("https://[2001:0:5db8:d822::80ff:fffe]/", rules)).toBe("address");
  });
});
