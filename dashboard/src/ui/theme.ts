import { useSyncExternalStore } from "react";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "tidemill-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();

function chosen(): Theme {
  const stored = localStorage.getItem(KEY);
  return THEMES.find((theme) => theme === stored) ?? "system";
}

function shown(): "light" | "dark" {
  const theme = chosen();
  if (theme !== "system") return theme;
  return dark.matches ? "dark" : "light";
}

function apply(): void {
  document.documentElement.dataset["theme"] = shown();
  for (const watcher of watchers) watcher();
}

/** As the person chose, or as their system has it. */
export function startTheme(): void {
  dark.addEventListener("change", apply);
  addEventListener("storage", ({ key }) => key === KEY && apply());
  apply();
}

export function chooseTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
  apply();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

export const useTheme = (): Theme => useSyncExternalStore(watch, chosen);
export const useShownTheme = (): "light" | "dark" => useSyncExternalStore(watch, shown);
