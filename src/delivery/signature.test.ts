import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { InvalidInputError } from "../base/errors.ts";
import {
  callSecret,
  createWebhookSecret,
  signWebhook,
  verifyWebhook,
  type WebhookHeaders,
  WebhookSignatureError,
} from "./signature.ts";

const NEW = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OLD = "whsec_//79/Pv6+fj39vX08/Lx8O/u7ezr6uno";
const OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW = new Date(1_700_000_000_000);
const BODY = '{"a":1}';

const signed = (secrets: readonly string[] = [NEW]): WebhookHeaders =>
  signWebhook({ id: "msg_1", body: BODY }, secrets, NOW);
const later = (seconds: number): Date => new Date(NOW.getTime() + seconds * 1_000);

describe("a signature", () => {
  // The first is the example that libraries of Standard Webhooks share; all were computed with
  // `openssl dgst -sha256 -mac HMAC`.
  it.each([
    {
      secret: OTHER,
      id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
      seconds: 1_614_265_330,
      body: '{"test": 2432232314}',
      expected: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    {
      secret: NEW,
      id: "msg_1",
      seconds: 1_700_000_000,
      body: "",
      expected: "v1,amcCR9+HGJUcbpN0HzliuKzDJkenCx5mV9lf3DlQ0mM=",
    },
    {
      secret: NEW,
      id: "msg_1",
      seconds: 1_700_000_000,
      body: '{"größe":"ä"}',
      expected: "v1,Ap5m6yxPJr5DUlW5+X31GRUopZXfpwxHZBJF10ta1RE=",
    },
    {
      secret: NEW,
      id: "msg_1",
      seconds: 1_700_000_000,
      body: Uint8Array.of(0xff, 0x00, 0xfe),
      expected: "v1,e7klHsEhct9567UsrMIBMJ+sFsiga6Ko+v2Spn6KlHo=",
    },
    {
      secret: OLD,
      id: "msg_1",
      seconds: 1_700_000_000,
      body: BODY,
      expected: "v1,JJNdLxQqQxfXfhOaEYe16egjaM6nLJTrTYhHMr/Tqao=",
    },
  ])("of $body is $expected", ({ secret, id, seconds, body, expected }) => {
    const now = new Date(seconds * 1_000);
    const headers = signWebhook({ id, body }, [secret], now);
    expect(headers).toEqual({
      "webhook-id": id,
      "webhook-timestamp": String(seconds),
      "webhook-signature": expected,
    });
    expect(() => verifyWebhook(headers, body, [secret], now)).not.toThrow();
  });

  it("is of the exact bytes", () => {
    const headers = signed();
    for (const body of ['{"a":1} ', '{"a": 1}', "", BODY.toUpperCase()]) {
      expect(() => verifyWebhook(headers, body, [NEW], NOW)).toThrow("no signature fits");
    }
    expect(() => verifyWebhook(headers, Buffer.from(BODY), [NEW], NOW)).not.toThrow();
  });

  it("is of this endpoint's secret alone", () => {
    expect(() => verifyWebhook(signed(), BODY, [OTHER], NOW)).toThrow(WebhookSignatureError);
  });

  it("is of this id and this time: neither can be exchanged", () => {
    const headers = signed();
    const renamed = { ...headers, "webhook-id": "msg_2" };
    const renewed = { ...headers, "webhook-timestamp": "1700000001" };
    for (const forged of [renamed, renewed]) {
      expect(() => verifyWebhook(forged, BODY, [NEW], NOW)).toThrow("no signature fits");
    }
  });

  it("does not fit when the dots are read elsewhere", () => {
    // "msg_1" "1700000000" "1.{}" and "msg_1.1700000000" "1" "{}" are the same bytes.
    const headers = signWebhook({ id: "msg_1", body: "1.{}" }, [NEW], NOW);
    const shifted = { ...headers, "webhook-id": "msg_1.1700000000", "webhook-timestamp": "1" };
    expect(() => verifyWebhook(shifted, "{}", [NEW], new Date(1_000))).toThrow("well-formed");
    expect(() => signWebhook({ id: "a.b", body: "" }, [NEW], NOW)).toThrow(InvalidInputError);
  });
});

describe("a copy that comes later", () => {
  it.each([-300, -299, 0, 299, 300])("is accepted %i seconds away", (seconds) => {
    expect(() => verifyWebhook(signed(), BODY, [NEW], later(seconds))).not.toThrow();
  });

  it.each([-86_400, -301, 300.001, 301, 86_400])("is refused %d seconds away", (seconds) => {
    expect(() => verifyWebhook(signed(), BODY, [NEW], later(seconds))).toThrow("within 5 minutes");
  });

  it("is refused when the time is none", () => {
    const away = new Date(Number.NaN);
    expect(() => verifyWebhook(signed(), BODY, [NEW], away)).toThrow(WebhookSignatureError);
    expect(() => signWebhook({ id: "msg_1", body: BODY }, [NEW], away)).toThrow("no time");
  });
});

describe("a rotation", () => {
  it("signs with both secrets, so that receivers may change in their own time", () => {
    const headers = signed([NEW, OLD]);
    expect(headers["webhook-signature"]).toBe(
      "v1,AMaOha7DUT/0J0JMycRuYOBSvbx3WtwLd2khXXbaVj4= " +
        "v1,JJNdLxQqQxfXfhOaEYe16egjaM6nLJTrTYhHMr/Tqao=",
    );
    for (const secrets of [[NEW], [OLD], [OLD, NEW], [OTHER, OLD]]) {
      expect(() => verifyWebhook(headers, BODY, secrets, NOW)).not.toThrow();
    }
    expect(() => verifyWebhook(headers, BODY, [OTHER], NOW)).toThrow(WebhookSignatureError);
  });

  it("accepts what was signed with the old secret only as long as it is given", () => {
    const before = signed([OLD]);
    expect(() => verifyWebhook(before, BODY, [NEW, OLD], NOW)).not.toThrow();
    expect(() => verifyWebhook(before, BODY, [NEW], NOW)).toThrow(WebhookSignatureError);
  });

  it("passes over versions and texts that it does not know", () => {
    const own = signed()["webhook-signature"];
    const list = `v1a,${"A".repeat(86)}== v2,x v1, v1,short= ${own}`;
    const headers = { ...signed(), "webhook-signature": list };
    expect(() => verifyWebhook(headers, BODY, [NEW], NOW)).not.toThrow();
    const foreign = { ...headers, "webhook-signature": own.replace("v1,", "v2,") };
    expect(() => verifyWebhook(foreign, BODY, [NEW], NOW)).toThrow("no signature fits");
  });
});

describe("headers", () => {
  it.each([
    ["webhook-id", ""],
    ["webhook-id", "a b"],
    ["webhook-timestamp", ""],
    ["webhook-timestamp", "1700000000.0"],
    ["webhook-timestamp", "01700000000"],
    ["webhook-timestamp", "+1700000000"],
    ["webhook-timestamp", " 1700000000"],
    ["webhook-timestamp", "0x6553f100"],
    ["webhook-timestamp", "1.7e9"],
    ["webhook-signature", ""],
  ])("%s must not be %j", (name, value) => {
    const headers = { ...signed(), [name]: value };
    expect(() => verifyWebhook(headers, BODY, [NEW], NOW)).toThrow("well-formed");
  });

  it("must be there", () => {
    for (const name of ["webhook-id", "webhook-timestamp", "webhook-signature"]) {
      const { [name]: _, ...rest } = signed() as unknown as Record<string, string>;
      const headers = rest as unknown as WebhookHeaders;
      expect(() => verifyWebhook(headers, BODY, [NEW], NOW)).toThrow(WebhookSignatureError);
    }
  });

  it("must not hold any number of signatures", () => {
    const { "webhook-signature": own } = signed();
    const headers = { ...signed(), "webhook-signature": `${"v1,x ".repeat(300)}${own}` };
    expect(() => verifyWebhook(headers, BODY, [NEW], NOW)).toThrow("too long");
  });
});

describe("a secret", () => {
  it("is new each time, and long enough", () => {
    const secrets = new Set(Array.from({ length: 100 }, createWebhookSecret));
    expect(secrets.size).toBe(100);
    for (const secret of secrets) {
      expect(() => verifyWebhook(signed([secret]), BODY, [secret], NOW)).not.toThrow();
    }
  });

  it.each([
    "",
    " ",
    "whsec_",
    "whsec_   ",
    "secret",
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "whsec_c2hvcnQ=",
    `whsec_${Buffer.alloc(23).toString("base64")}`,
    `whsec_${Buffer.alloc(65).toString("base64")}`,
    `${NEW}\n`,
    NEW.replace("=", ""),
    NEW.replaceAll("+", "-").replace("Hh8=", "Hh9="),
  ])("%j signs nothing, and is not repeated", (secret) => {
    let thrown: unknown;
    try {
      signed([secret]);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(InvalidInputError);
    if (secret.trim().length > 6) expect(inspect(thrown)).not.toContain(secret.trim());
    expect(() => verifyWebhook(signed(), BODY, [secret], NOW)).toThrow(InvalidInputError);
  });

  it("has one other beside it at most, and is there", () => {
    expect(() => signed([])).toThrow("not 0");
    expect(() => signed([NEW, OLD, OTHER])).toThrow("not 3");
    expect(() => verifyWebhook(signed(), BODY, [], NOW)).toThrow("not 0");
  });
});

it("signs calls with a secret of their own, which does not pass for the endpoint's", () => {
  // By RFC 5869, worked out with another implementation: receivers have stored it.
  expect(callSecret(NEW)).toBe("whsec_vsHUI8xXDH6Z1G9xUbPWqtshNS8hpI6cKSHgJ9YnaRc=");
  const headers = signed([callSecret(NEW)]);
  verifyWebhook(headers, BODY, [callSecret(NEW)], NOW);
  expect(() => verifyWebhook(headers, BODY, [NEW], NOW)).toThrow(/no signature fits/);
  expect(() => callSecret("whsec_")).toThrow(InvalidInputError);
});
