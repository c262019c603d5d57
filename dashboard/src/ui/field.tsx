import {
  type InputHTMLAttributes,
  type SelectHTMLAttributes,
  type TextareaHTMLAttributes,
  useId,
} from "react";

const LOOK =
  "min-h-8 w-full rounded-md border border-muted/60 bg-panel px-2.5 py-1 text-sm text-ink";

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
