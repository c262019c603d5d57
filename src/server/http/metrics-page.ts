/** What has metrics in Prometheus' text. */
export interface MetricsSource {
  text(): string;
}

const TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** A fetch handler for a port of its own, which by default only this machine reaches. */
export function createMetricsPage(
  sources: readonly MetricsSource[],
): (request: Request) => Promise<Response> {
  return async (request) => {
    const { pathname } = new URL(request.url);
    if (pathname !== "/metrics" && pathname !== "/") return new Response(null, { status: 404 });
    if (request.method !== "GET" && request.method !== "HEAD") {
      return new Response(null, { status: 405, headers: { allow: "GET, HEAD" } });
    }
    const text = sources.map((source) => source.text().trimEnd()).join("\n");
    return new Response(`${text}\n`, { headers: { "content-type": TYPE } });
  };
}
