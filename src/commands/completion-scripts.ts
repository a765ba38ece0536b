/** What follows a flag. */
type Value =
  | { readonly kind: 'none' }
  | { readonly kind: 'any' }
  | { readonly kind: 'file' }
  | { readonly kind: 'words'; readonly words: readonly string[] };

export interface Flag {
  /** Without the dashes. */
  readonly name: string;
  readonly value: Value;
}

export interface CommandFlags {
  readonly name: string;
  readonly does: string;
  readonly flags: readonly Flag[];
  /** What may follow the command itself. */
  readonly words: readonly string[];
}

/** The scripts by their shells. All words come from the code of the commands: none needs to be quoted. */
export const scripts: ReadonlyMap<string, (commands: readonly CommandFlags[]) => string> = new Map([
  ['bash', bash],
  ['zsh', zsh],
  ['fish', fish],
]);

const namesOf = (commands: readonly CommandFlags[]): string => commands.map(({ name }) => name).join(' ');

const wordsOf = ({ flags, words }: CommandFlags): string =>
  [...words, ...flags.map(({ name }) => `--${name}`)].join(' ');

/** The branches of a `case` on the word before, and one for each command. */
function branches(commands: readonly CommandFlags[], give: (words: string) => string, file: string): string {
  const flags = new Map(commands.flatMap((command) => command.flags).map((flag) => [flag.name, flag.value]));
  const lines: string[] = [];
  for (const [name, value] of flags) {
    if (value.kind === 'none') continue;
    const what = value.kind === 'words' ? give(value.words.join(' ')) : value.kind === 'file' ? file : ':';
    lines.push(`    --${name}) ${what}; return ;;`);
  }
  return lines.join('\n');
}

const commandBranches = (commands: readonly CommandFlags[], give: (words: string) => string): string =>
  commands.map((command) => `    ${command.name}) ${give(wordsOf(command))} ;;`).join('\n');

function bash(commands: readonly CommandFlags[]): string {
  const give = (words: string): string => `COMPREPLY=($(compgen -W "${words}" -- "$current"))`;
  return `# bash completion of distributary
_distributary() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    ${give(`${namesOf(commands)} --help --version`)}
    return
  fi
  case "$before" in
${branches(commands, give, 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current"))')}
  esac
  case "\${COMP_WORDS[1]}" in
${commandBranches(commands, give)}
  esac
}
complete -F _distributary distributary
`;
}

function zsh(commands: readonly CommandFlags[]): string {
  const give = (words: string): string => `compadd -- ${words}`;
  return `#compdef distributary
_distributary() {
  if (( CURRENT == 2 )); then
    ${give(`${namesOf(commands)} --help --version`)}
    return
  fi
  case "\${words[CURRENT-1]}" in
${branches(commands, give, '_files')}
  esac
  case "\${words[2]}" in
${commandBranches(commands, give)}
  esac
}
if [ "$funcstack[1]" = "_distributary" ]; then
  _distributary "$@"
else
  compdef _distributary distributary
fi
`;
}

function fish(commands: readonly CommandFlags[]): string {
  const lines = ['# fish completion of distributary', 'complete -c distributary -f'];
  for (const { name, does, flags, words } of commands) {
    lines.push(`complete -c distributary -n __fish_use_subcommand -a ${name} -d "${does}"`);
    const after = `complete -c distributary -n "__fish_seen_subcommand_from ${name}"`;
    if (words.length > 0) lines.push(`${after} -a "${words.join(' ')}"`);
    for (const flag of flags) lines.push(`${after} -l ${flag.name}${fishValue(flag.value)}`);
  }
  return `${lines.join('\n')}\n`;
}

function fishValue(value: Value): string {
  switch (value.kind) {
    case 'none':
      return '';
    case 'any':
      return ' -x';
    case 'file':
      return ' -r -F';
    case 'words':
      return ` -x -a "${value.words.join(' ')}"`;
    default:
      return value satisfies never;
  }
}
