export { ForbiddenError, LimitError, UnauthenticatedError } from "../base/errors.ts";
export { Secret } from "../base/secret.ts";
export { QuotaError } from "../tasks/quota.ts";
export { type ApiKey, ApiKeyAdmin, type ApiKeyOptions } from "./auth/api-key-admin.ts";
export { type Authenticator, bearerOf } from "./auth/authenticator.ts";
export { type Act, type Caller, may, mayOnSome, requireMay, type Scope } from "./auth/caller.ts";
export { type Auth, type AuthContext, type AuthOptions, createAuth } from "./auth/create.ts";
export type { FetchJson, FetchLimits } from "./auth/issuer-keys.ts";
export type { JwtIssuerOptions } from "./auth/issuer-options.ts";
export type { StaticTokenOptions } from "./auth/static-tokens.ts";
export { StreamAuth, type StreamAuthOptions } from "./auth/stream-auth.ts";
export type { ClusterOptions } from "./cluster-options.ts";
export type { TlsOptions } from "./grpc/tls.ts";
export { createHttpApi, type HttpApi, type HttpApiContext } from "./http/api.ts";
export type {
  ClaimDesk,
  ClaimRequest,
  ClaimToken,
  Failure,
  HeldTask,
  Nack,
  NackAnswer,
  NoClaim,
} from "./http/claim-desk.ts";
export {
  type Answer,
  type AnswerNote,
  type Call,
  type Endpoint,
  type ErrorStyle,
  endpoint,
  type Method,
} from "./http/endpoint.ts";
export {
  HttpListener,
  type ListenerContext,
  type ListenOptions as HttpListenOptions,
} from "./http/listener.ts";
export type { HttpMetrics } from "./http/metrics.ts";
export { createMetricsPage, type MetricsSource } from "./http/metrics-page.ts";
export type { HttpLimits } from "./http/options.ts";
export type { ServerMetrics } from "./metrics.ts";
export type { ListenOptions, ServerOptions } from "./options.ts";
export { type ListenerName, TidemillServer } from "./server.ts";
