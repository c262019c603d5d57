import { Component, type ReactNode } from "react";
import { Button } from "./button.tsx";

interface State {
  readonly error: Error | undefined;
}

export interface ErrorBoundaryProps {
  readonly children: ReactNode;
}

/** What cannot be drawn says so in its place, and leaves what is around it as it is. */
export class ErrorBoundary extends Component<ErrorBoundaryProps, State> {
  override state: State = { error: undefined };

  static getDerivedStateFromError(thrown: unknown): State {
    return { error: thrown instanceof Error ? thrown : new Error(String(thrown)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return (
      <div role="alert" className="mx-auto flex max-w-3xl flex-col items-start gap-3 p-4">
        <h1 className="text-xl font-semibold">This page cannot be shown</h1>
        <p>
          Something went wrong while it was drawn. Was Tidemill upgraded since this tab was opened?
          Then a reload gets the new version. If it happens again, report it with the text below.
        </p>
        <pre className="w-full rounded-md bg-sunken p-3 text-xs whitespace-pre-wrap">
          {String(error)}
        </pre>
        <Button kind="primary" onClick={() => location.reload()}>
          Reload
        </Button>
      </div>
    );
  }
}
