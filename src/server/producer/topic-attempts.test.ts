import { describe, expect, it } from "vitest";
import { ManualClock } from "../../../test/support/manual-clock.ts";
import { completing, TopicAttempts } from "./topic-attempts.ts";

describe("the attempts of a tenant's topics", () => {
  it("are read once for all who come within a second, and anew after it", async () => {
    const clock = new ManualClock();
    const read: string[] = [];
    const topics = new TopicAttempts((tenant) => {
      read.push(tenant);
      return Promise.resolve(new Map([["mails", read.length]]));
    }, clock);
    const [first, same] = await Promise.all([topics.of("acme"), topics.of("acme")]);
    expect([first, same].map((one) => one.get("mails"))).toEqual([1, 1]);
    expect((await topics.of("globex")).get("mails")).toBe(2);
    clock.advance(999);
    expect((await topics.of("acme")).get("mails")).toBe(1);
    clock.advance(1);
    expect((await topics.of("acme")).get("mails")).toBe(3);
    expect(read).toEqual(["acme", "globex", "acme"]);
  });

  it("that could not be read are asked for again by the next", async () => {
    const answers = [Promise.reject(new Error("away")), Promise.resolve(new Map([["mails", 4]]))];
    const topics = new TopicAttempts(() => answers.shift() ?? expect.fail(), new ManualClock());
    await expect(topics.of("acme")).rejects.toThrow("away");
    expect((await topics.of("acme")).get("mails")).toBe(4);
  });

  it("go to options without a number, and alike options stay one", () => {
    const complete = completing(new Map([["mails", 4]]));
    const [plain, own] = [{ priority: 3 }, { maxAttempts: 9 }];
    expect(complete("mails", plain)).toMatchObject({ priority: 3, maxAttempts: 4 });
    expect(complete("mails", plain)).toBe(complete("mails", plain));
    expect(complete("mails", own)).toBe(own);
    expect(complete("letters", plain)).toBe(plain);
  });
});
