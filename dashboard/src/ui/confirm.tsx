import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Button } from "./button.tsx";
import { TextArea } from "./field.tsx";
import { useNotify } from "./notices.tsx";

export interface ConfirmProps {
  readonly title: string;
  /** What will happen. */
  readonly children: ReactNode;
  /** What is done, as a verb. */
  readonly verb: string;
  readonly isDangerous?: boolean;
  /** Whether a reason is asked for, which the server writes down. */
  readonly reason?: "required" | "optional";
  /** What leaving does while it is under way. Defaults to nothing: what was sent is sent. */
  readonly stopVerb?: string;
  /** Rejects with what is then shown. */
  readonly onConfirm: (reason: string | undefined) => Promise<void>;
  readonly onClose: () => void;
}

/** Asks before something happens. It is open for as long as it is there. */
export function Confirm(props: ConfirmProps) {
  const { title, children, verb, isDangerous = false, reason, stopVerb } = props;
  const { onConfirm, onClose } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const id = useId();
  const notify = useNotify();
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async (event: FormEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("reason");
    const text = typeof given === "string" ? given.trim() : "";
    if (reason === "required" && text === "") {
      setError("Say why: it is written down.");
      return;
    }
    setBusy(true);
    try {
      await onConfirm(text === "" ? undefined : text);
      dialog.current?.close();
    } catch (failure) {
      const message = failure instanceof Error ? failure.message : String(failure);
      // Who has closed it meanwhile is told all the same.
      if (dialog.current?.open !== true) notify(`${title.replace(/\?$/, "")} failed: ${message}`);
      setError(message);
      setBusy(false);
    }
  };
  const leave = isBusy || error !== undefined ? "Close" : "Keep as it is";
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onClose={onClose}
      className="m-auto w-[min(34rem,calc(100vw-2rem))] rounded-lg border border-line shadow-2xl"
    >
      <form onSubmit={(event) => void submit(event)} className="flex flex-col gap-4 p-5">
        <h2 id={id} className="text-base font-semibold">
          {title}
        </h2>
        <div className="flex flex-col gap-2">{children}</div>
        {reason === undefined ? null : (
          <TextArea
            name="reason"
            label={reason === "required" ? "Reason" : "Reason (optional)"}
            rows={2}
            maxLength={1000}
          />
        )}
        {error === undefined ? null : (
          <p role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-bad">
            {error}
          </p>
        )}
        <div className="flex justify-end gap-2">
          <Button onClick={() => dialog.current?.close()}>
            {isBusy && stopVerb !== undefined ? stopVerb : leave}
          </Button>
          <Button type="submit" kind={isDangerous ? "danger" : "primary"} disabled={isBusy}>
            {verb}
          </Button>
        </div>
      </form>
    </dialog>
  );
}
