import { z } from "@hono/zod-openapi";
import { InvalidInputError } from "../../../base/errors.ts";
import type { Artifact } from "../../../delivery/codeq-artifacts.ts";
import { bytesOf } from "../schemas.ts";

const ARTIFACTS_MAX = 100;
const NAME_LENGTH_MAX = 200;
const URL_LENGTH_MAX = 2_048;
const SCHEME = /^[a-z][a-z0-9+.-]*:/i;
const CONTENT_TYPE = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/;

export const givenArtifacts = z
  .array(
    z.object({
      name: z.string().min(1).max(NAME_LENGTH_MAX),
      url: z.string().max(URL_LENGTH_MAX).optional(),
      contentBase64: z.string().optional(),
      contentType: z.string().optional(),
    }),
  )
  .max(ARTIFACTS_MAX);

export interface GivenArtifact {
  readonly name: string;
  readonly url?: string | undefined;
  readonly contentBase64?: string | undefined;
  readonly contentType?: string | undefined;
}

/** As it is kept. What came with the result becomes a URL that holds all of it. */
export function artifactOf(given: GivenArtifact): Artifact {
  const { name, url = "", contentBase64 = "", contentType = "application/octet-stream" } = given;
  const refuse = (what: string): never => {
    throw new InvalidInputError(`artifact ${JSON.stringify(name)} ${what}`);
  };
  if (contentBase64 === "") {
    if (url === "") refuse("needs a url or contentBase64");
    if (!SCHEME.test(url) || !URL.canParse(url)) refuse("has a url that is none");
    return { name, url };
  }
  if (url !== "") refuse("has a url and contentBase64; give one of them");
  bytesOf(`contentBase64 of artifact ${JSON.stringify(name)}`, contentBase64);
  if (!CONTENT_TYPE.test(contentType)) refuse("has a contentType that is none");
  return { name, url: `data:${contentType};base64,${contentBase64}` };
}
