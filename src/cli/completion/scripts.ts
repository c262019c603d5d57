import type { Flag, Place } from "./tree.ts";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

/** A program for the shell that completes what there is; written from the commands themselves. */
export function scriptFor(shell: Shell, places: readonly Place[]): string {
  if (shell === "fish") return fish(places);
  return shell === "bash" ? bash(places) : zsh(places);
}

/** In quotes that leave everything as it is. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

const namesOf = (flags: readonly Flag[]): string[] => flags.flatMap(({ names }) => names);
const unique = (words: Iterable<string>): string[] => [...new Set(words)];

function cases(lines: readonly (readonly [pattern: string, act: string])[]): string[] {
  return lines.map(([pattern, act]) => `    ${pattern}) ${act} ;;`);
}

/**
 * Which command is meant is found out word by word: what follows a flag that takes a value is that
 * value, and no command.
 */
function bash(places: readonly Place[]): string {
  const flags = places.flatMap((place) => place.flags);
  const valued = unique(namesOf(flags.filter(({ takesValue }) => takesValue)));
  const paths = places.map(({ path }) => path).filter((path) => path !== "");
  const choices = new Map<string, string>();
  for (const { names, choices: words } of flags) {
    if (words.length > 0) for (const name of names) choices.set(name, words.join(" "));
  }
  return `# Completion of tidemill for bash: source it, or put it where bash looks for such files.
_tidemill() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" path="" next word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if _tidemill_takes_value "$word"; then
      ((i++))
      continue
    fi
    next="\${path:+$path }$word"
    if _tidemill_is_command "$next"; then path="$next"; fi
  done
  if _tidemill_takes_value "$prev"; then
    COMPREPLY=($(compgen -W "$(_tidemill_choices "$prev")" -- "$cur"))
    return
  fi
  COMPREPLY=($(compgen -W "$(_tidemill_words "$path")" -- "$cur"))
}
_tidemill_takes_value() {
  case "$1" in
${cases([[valued.join("|"), "return 0"]]).join("\n")}
  esac
  return 1
}
_tidemill_is_command() {
  case "$1" in
${cases([[paths.map(quoted).join("|"), "return 0"]]).join("\n")}
  esac
  return 1
}
_tidemill_choices() {
  case "$1" in
${cases([...choices].map(([name, words]) => [name, `echo ${quoted(words)}`])).join("\n")}
  esac
}
_tidemill_words() {
  case "$1" in
${cases(places.map((place) => [quoted(place.path), `echo ${quoted(wordsOf(place))}`])).join("\n")}
  esac
}
complete -o default -F _tidemill tidemill
`;
}

function wordsOf({ commands, words, flags }: Place): string {
  return unique([...commands.map(({ name }) => name), ...words, ...namesOf(flags)]).join(" ");
}

/** Zsh runs what is written for bash, if it is asked to. */
function zsh(places: readonly Place[]): string {
  return `#compdef tidemill
# Completion of tidemill for zsh: source it after compinit, such as at the end of ~/.zshrc.
autoload -U +X bashcompinit && bashcompinit
${bash(places).split("\n").slice(1).join("\n")}`;
}

function fish(places: readonly Place[]): string {
  const paths = places.map(({ path }) => path).filter((path) => path !== "");
  const flags = places.flatMap((place) => place.flags);
  const valued = unique(namesOf(flags.filter(({ takesValue }) => takesValue)));
  const lines = places.flatMap(({ path, commands, words, flags: own }) => {
    const at = `complete -c tidemill -n ${quoted(`__tidemill_at ${quoted(path)}`)}`;
    return [
      ...commands.map(({ name, says }) => `${at} -f -a ${quoted(name)} -d ${quoted(says)}`),
      ...words.map((word) => `${at} -f -a ${quoted(word)}`),
      ...own.map((flag) => `${at} ${fishFlag(flag)}`),
    ];
  });
  return `# Completion of tidemill for fish: save it as ~/.config/fish/completions/tidemill.fish.
function __tidemill_at
    set -l path
    set -l is_value 0
    for word in (commandline -opc)[2..-1]
        if test $is_value = 1
            set is_value 0
        else if contains -- $word ${valued.map(quoted).join(" ")}
            set is_value 1
        else if contains -- (string join ' ' $path $word) ${paths.map(quoted).join(" ")}
            set path $path $word
        end
    end
    test "$path" = "$argv"
end
${lines.join("\n")}
`;
}

function fishFlag({ names, says, takesValue, choices }: Flag): string {
  const spelled = names.map((name) =>
    name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
  );
  const any = takesValue ? " -r" : "";
  const value = choices.length > 0 ? ` -x -a ${quoted(choices.join(" "))}` : any;
  return `${spelled.join(" ")}${value} -d ${quoted(says)}`;
}
