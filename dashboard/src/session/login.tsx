import { type FormEvent, useState } from "react";
import { Button } from "../ui/button.tsx";
import { TextField } from "../ui/field.tsx";
import { Logo } from "../ui/logo.tsx";

export interface LoginProps {
  readonly notice: string | undefined;
  readonly onToken: (token: string) => Promise<void>;
}

const MAKE_KEY = "tidemill key create --tenant acme --scopes read";

/** Asks for a token. It stays in this tab, and goes to this server only. */
export function Login({ notice, onToken }: LoginProps) {
  const [error, setError] = useState(notice);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("token");
    const token = typeof given === "string" ? given.trim() : "";
    if (!/^[\x21-\x7e]+$/.test(token)) {
      setError("A token is one word of letters, digits and signs, without blanks.");
      return;
    }
    setBusy(true);
    try {
      await onToken(token);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <main className="grid min-h-dvh place-items-center p-4">
      <form
        onSubmit={(event) => void submit(event)}
        className="flex w-full max-w-sm flex-col gap-4 rounded-lg border border-line bg-panel p-6"
      >
        <h1 className="flex items-center gap-2 text-lg font-semibold">
          <Logo /> Sign in to Tidemill
        </h1>
        <TextField
          label="Token"
          name="token"
          type="password"
          autoComplete="off"
          spellCheck={false}
          autoFocus
          required
          hint="With scope read to look, admin to act. It is kept in this tab only."
        />
        {error === undefined ? null : (
          <p role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-bad">
            {error}
          </p>
        )}
        <Button type="submit" kind="primary" className="justify-center" disabled={isBusy}>
          Sign in
        </Button>
        <p className="text-xs text-muted">
          <code>{MAKE_KEY}</code> makes one; <code>tidemill dev</code> prints some.
        </p>
      </form>
    </main>
  );
}
