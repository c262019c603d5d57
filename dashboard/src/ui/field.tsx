import {
  type InputHTMLAttributes,
  type SelectHTMLAttributes,
  type TextareaHTMLAttributes,
  useCallback,
  useEffect,
  useId,
  useRef,
  useState,
} from "react";

const LOOK = "min-h-8 w-full rounded-md border border-edge bg-panel px-2.5 py-1 text-sm text-ink";

interface Labelled {
  readonly label: string;
  /** What it is for, below it. */
  readonly hint?: string;
}

export type TextFieldProps = Labelled & InputHTMLAttributes<HTMLInputElement>;

export function TextField({ label, hint, className = "", ...rest }: TextFieldProps) {
  const id = useId();
  const note = hint === undefined ? {} : { "aria-describedby": `${id}-hint` };
  return (
    <div className={`flex min-w-0 flex-col gap-1 ${className}`}>
      <label htmlFor={id} className="text-xs font-medium text-muted">
        {label}
      </label>
      <input id={id} className={LOOK} {...note} {...rest} />
      {hint === undefined ? null : (
        <p id={`${id}-hint`} className="text-xs text-muted">
          {hint}
        </p>
      )}
    </div>
  );
}

export interface SearchFieldProps extends Labelled {
  readonly value: string;
  readonly onValue: (value: string) => void;
}

const TYPING_MS = 300;

/** What is typed counts after a rest: what follows from it is fetched. */
export function SearchField({ value, onValue, ...rest }: SearchFieldProps) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const latest = useRef(onValue);
  latest.current = onValue;
  // Set from elsewhere, and not the echo of what was typed here.
  useEffect(() => {
    if (value !== told.current) setText(value);
    told.current = value;
  }, [value]);
  const tell = useCallback((typed: string): void => {
    if (typed === told.current) return;
    told.current = typed;
    latest.current(typed);
  }, []);
  useEffect(() => {
    const timer = setTimeout(() => tell(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, tell]);
  return (
    <TextField
      {...rest}
      value={text}
      onChange={(event) => setText(event.target.value)}
      // Whoever goes on to a button means it for what was typed.
      onBlur={() => tell(text)}
    />
  );
}

export type CheckFieldProps = Labelled & Omit<InputHTMLAttributes<HTMLInputElement>, "type">;

export function CheckField({ label, className = "", ...rest }: CheckFieldProps) {
  return (
    <label className={`flex min-h-8 items-center gap-2 ${className}`}>
      <input type="checkbox" className="size-5 shrink-0 accent-accent" {...rest} />
      {label}
    </label>
  );
}

export type TextAreaProps = Labelled & TextareaHTMLAttributes<HTMLTextAreaElement>;

export function TextArea({ label, className = "", ...rest }: TextAreaProps) {
  const id = useId();
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-muted">
        {label}
      </label>
      <textarea id={id} className={`${LOOK} ${className}`} {...rest} />
    </div>
  );
}

export type SelectProps = Labelled &
  Omit<SelectHTMLAttributes<HTMLSelectElement>, "children"> & {
    readonly options: readonly (readonly [value: string, text: string])[];
  };

export function Select({ label, options, className = "", ...rest }: SelectProps) {
  const id = useId();
  return (
    <div className={`flex min-w-0 flex-col gap-1 ${className}`}>
      <label htmlFor={id} className="text-xs font-medium text-muted">
        {label}
      </label>
      <select id={id} className={LOOK} {...rest}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}
