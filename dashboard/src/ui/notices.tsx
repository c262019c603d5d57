import { createContext, type ReactNode, useCallback, useContext, useState } from "react";

interface Notice {
  readonly id: number;
  readonly text: string;
}

const SHOWN_MS = 6_000;
const NOTICES_MAX = 3;
const NoticeContext = createContext<(text: string) => void>(() => {});
let lastId = 0;

/** Says what was done, to eyes and to screen readers, and goes away by itself. */
export const useNotify = (): ((text: string) => void) => useContext(NoticeContext);

export function Notices({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<readonly Notice[]>([]);
  const notify = useCallback((text: string) => {
    lastId += 1;
    const id = lastId;
    setNotices((before) => [...before, { id, text }].slice(-NOTICES_MAX));
    setTimeout(() => setNotices((now) => now.filter((one) => one.id !== id)), SHOWN_MS);
  }, []);
  return (
    <NoticeContext.Provider value={notify}>
      {children}
      <div
        role="status"
        className="pointer-events-none fixed inset-x-0 bottom-4 z-20 grid place-items-center gap-2"
      >
        {notices.map(({ id, text }) => (
          <p key={id} className="rounded-md bg-ink px-4 py-2 text-sm text-canvas shadow-lg">
            {text}
          </p>
        ))}
      </div>
    </NoticeContext.Provider>
  );
}
