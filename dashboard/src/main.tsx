import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { Sessions } from "./session/session.tsx";
import { ErrorBoundary } from "./ui/error-boundary.tsx";
import { Notices } from "./ui/notices.tsx";
import { startTheme } from "./ui/theme.ts";
import "./style.css";

startTheme();
const root = document.querySelector("#root");
if (root === null) throw new Error("the page has no root");
createRoot(root).render(
  <StrictMode>
    <ErrorBoundary>
      <Notices>
        <Sessions>
          <App />
        </Sessions>
      </Notices>
    </ErrorBoundary>
  </StrictMode>,
);
