import type { ButtonHTMLAttributes } from "react";

const KINDS = {
  plain: "border-line bg-panel text-ink hover:bg-sunken",
  primary: "border-accent bg-accent text-accent-ink hover:opacity-90",
  danger: "border-bad bg-panel text-bad hover:bg-bad-soft",
  quiet: "border-transparent text-muted hover:bg-sunken hover:text-ink",
} as const;

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly kind?: keyof typeof KINDS;
}

export function Button({ kind = "plain", className = "", type = "button", ...rest }: ButtonProps) {
  const look = "inline-flex min-h-8 items-center gap-1.5 rounded-md border px-3 py-1 text-sm";
  const state = "font-medium transition-colors disabled:opacity-50";
  return (
    <button type={type} className={`${look} ${state} ${KINDS[kind]} ${className}`} {...rest} />
  );
}
