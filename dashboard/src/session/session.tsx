import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useState,
} from "react";
import { Api, ApiError } from "../api/http.ts";
import type { Me } from "../api/types.ts";
import { LiveContext } from "../live/hooks.ts";
import { LiveStore } from "../live/tab-line.ts";
import { Away } from "./away.tsx";
import { Login } from "./login.tsx";
import { keepToken, readToken } from "./token.ts";

export interface Session {
  readonly me: Me;
  readonly api: Api;
  /** Whether the token allows it, on some queue at least. */
  readonly may: (act: string) => boolean;
  readonly leave: () => void;
}

const SessionContext = createContext<Session | undefined>(undefined);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === undefined) throw new Error("there is no session here");
  return session;
}

type State =
  | { readonly at: "checking" }
  /** Nobody knows whether the token is good. */
  | { readonly at: "away"; readonly reason: string }
  | { readonly at: "out"; readonly notice?: string }
  | { readonly at: "in"; readonly token: string; readonly me: Me };

/** What a token has to allow: everything here follows the feed. */
function refusal(me: Me): string | undefined {
  if (me.acts.includes("feed.read")) return undefined;
  return `This token of ${me.subject} may not read. Use one with the scope "read" or "admin".`;
}

/** A server that does not answer says nothing about the token, which is kept. */
function stateAfter(error: unknown, token: string): State {
  const reason = error instanceof Error ? error.message : String(error);
  if (error instanceof ApiError && error.isPassing) return { at: "away", reason };
  const isNews = token !== "" || !(error instanceof ApiError) || error.status !== 401;
  return { at: "out", ...(isNews ? { notice: reason } : {}) };
}

/** Who may come in sees what is inside; everybody else is asked for a token. */
export function Sessions({ children }: { children: ReactNode }) {
  const [state, setState] = useState<State>({ at: "checking" });
  const enter = useCallback(async (token: string): Promise<void> => {
    const me = await new Api(token).get<Me>("/v1/me");
    const refused = refusal(me);
    if (refused !== undefined) throw new ApiError(403, "TM_FORBIDDEN", refused);
    keepToken(token);
    setState({ at: "in", token, me });
  }, []);
  const leave = useCallback((notice?: string) => {
    keepToken("");
    setState({ at: "out", ...(notice === undefined ? {} : { notice }) });
  }, []);
  const check = useCallback((): void => {
    const token = readToken();
    enter(token).catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 401) keepToken("");
      setState(stateAfter(error, token));
    });
  }, [enter]);
  useEffect(check, [check]);
  if (state.at === "checking") return <p className="p-8 text-center text-muted">Loading…</p>;
  if (state.at === "away") return <Away reason={state.reason} onRetry={check} />;
  if (state.at === "out") return <Login notice={state.notice} onToken={enter} />;
  return (
    <Inside key={state.token} token={state.token} me={state.me} leave={leave}>
      {children}
    </Inside>
  );
}

interface InsideProps {
  readonly token: string;
  readonly me: Me;
  readonly leave: (notice?: string) => void;
  readonly children: ReactNode;
}

function Inside({ token, me, leave, children }: InsideProps) {
  const [store, setStore] = useState<LiveStore>();
  const queries = useMemo(makeQueries, []);
  const session = useMemo<Session>(() => {
    const api = new Api(token, () => leave("The token is no longer accepted. Sign in again."));
    return { me, api, may: (act) => me.acts.includes(act), leave: () => leave() };
  }, [token, me, leave]);
  useEffect(() => {
    const opened = new LiveStore(token);
    setStore(opened);
    return () => opened.close();
  }, [token]);
  if (store === undefined) return null;
  return (
    <SessionContext.Provider value={session}>
      <QueryClientProvider client={queries}>
        <LiveContext.Provider value={store}>{children}</LiveContext.Provider>
      </QueryClientProvider>
    </SessionContext.Provider>
  );
}

const AGAIN_MS = 5_000;

/** Nothing is fetched again because time has passed: the feed says when. What failed is. */
function makeQueries(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: Number.POSITIVE_INFINITY,
        refetchOnWindowFocus: false,
        refetchOnReconnect: false,
        refetchInterval: ({ state }) => (state.status === "error" ? AGAIN_MS : false),
        retry: (count, error) => count < 2 && error instanceof ApiError && error.status >= 500,
        // A browser that is offline still reaches a server on the same machine.
        networkMode: "always",
      },
    },
  });
}
