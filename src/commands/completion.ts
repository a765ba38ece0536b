import { anyOf, unknownWord } from '../model/text.ts';
import { type Command, defineCommand, type Flag, UsageError } from './command.ts';

/** The scripts by their shells. All words come from the declarations of the commands: none needs to be quoted. */
const scripts: ReadonlyMap<string, (commands: readonly Command[]) => string> = new Map([
  ['bash', bash],
  ['zsh', zsh],
  ['fish', fish],
]);

const shells = [...scripts.keys()];

/** `commands`: called when they are all defined. */
export const completionOf = (commands: () => readonly Command[]): Command =>
  defineCommand({
    name: 'completion',
    does: 'prints a script that completes commands and flags in bash, zsh or fish',
    about: `Prints a script by which the shell completes commands, flags, types and states.

  bash   source <(distributary completion bash), in ~/.bashrc
  zsh    distributary completion zsh > a file _distributary in a directory
         of $fpath
  fish   distributary completion fish
         > ~/.config/fish/completions/distributary.fish`,
    usage: shells.join('|'),
    operands: { most: 1, words: shells },
    flags: {},
    exit: '0.',
    run: (_, { terminal, operands: [shell] }) => {
      if (shell === undefined) return new UsageError(`the shell is missing: expected ${anyOf(shells)}`);
      const script = scripts.get(shell);
      if (script === undefined) return new UsageError(unknownWord('shell', shell, shells));
      terminal.out(script(commands()));
      return Promise.resolve(0);
    },
  });

const namesOf = (commands: readonly Command[]): string => commands.map(({ name }) => name).join(' ');

const wordsOf = ({ flags, operands }: Command): string =>
  [...(operands?.words ?? []), ...Object.keys(flags).map((name) => `--${name}`)].join(' ');

/** The branches of a `case` on the word before, and one for each command. A flag means the same in every command. */
function branches(commands: readonly Command[], give: (words: string) => string, file: string): string {
  const flags = new Map(commands.flatMap((command) => Object.entries(command.flags)));
  const lines: string[] = [];
  for (const [name, { value, words, short }] of flags) {
    if (value === '') continue;
    const what = words === 'file' ? file : words.length === 0 ? ':' : give(words.join(' '));
    lines.push(`    --${name}${short === undefined ? '' : `|-${short}`}) ${what}; return ;;`);
  }
  return lines.join('\n');
}

const commandBranches = (commands: readonly Command[], give: (words: string) => string): string =>
  commands.map((command) => `    ${command.name}) ${give(wordsOf(command))} ;;`).join('\n');

function bash(commands: readonly Command[]): string {
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

function zsh(commands: readonly Command[]): string {
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

function fish(commands: readonly Command[]): string {
  const lines = ['# fish completion of distributary', 'complete -c distributary -f'];
  for (const { name, does, flags, operands } of commands) {
    lines.push(`complete -c distributary -n __fish_use_subcommand -a ${name} -d "${does}"`);
    const after = `complete -c distributary -n "__fish_seen_subcommand_from ${name}"`;
    const words = operands?.words ?? [];
    if (words.length > 0) lines.push(`${after} -a "${words.join(' ')}"`);
    for (const [flag, { value, words, short }] of Object.entries(flags)) {
      const letter = short === undefined ? '' : ` -s ${short}`;
      lines.push(`${after} -l ${flag}${letter}${value === '' ? '' : fishValue(words)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

const fishValue = (words: Flag['words']): string =>
  words === 'file' ? ' -r -F' : words.length === 0 ? ' -x' : ` -x -a "${words.join(' ')}"`;
