import { status } from "@grpc/grpc-js";
import { expect, it } from "vitest";
import { UnauthenticatedError } from "../../base/errors.ts";
import { codeqRefusal } from "./status.ts";

it("tells CodeQ's clients that a token names no tenant, and of others why they are no good", () => {
  expect(codeqRefusal(new UnauthenticatedError("tenant", "tid: missing"))).toMatchObject({
    code: status.PERMISSION_DENIED,
    message: "invalid tenant claims",
  });
  expect(codeqRefusal(new UnauthenticatedError("expired"))).toMatchObject({
    code: status.UNAUTHENTICATED,
    message: "auth failed: the token has expired",
  });
});
