import { eventually } from '../e2e/support/eventually.ts';
import { Process } from '../e2e/support/process.ts';

/** How long a command may take, and how long what it prints may differ from the page: a relay waits up to 30 s to connect. */
const patience = 90_000;

/** A reader at a terminal: one bash for all blocks, so that variables, aliases and jobs last. */
export class ReaderTerminal implements AsyncDisposable {
  readonly #bash: Process;
  #blocks = 0;

  constructor(cwd: string, env: Readonly<Record<string, string>>) {
    this.#bash = new Process({ command: 'bash', args: [], cwd, env });
    // As in a terminal. Whatever a failed test leaves in the background ends with the terminal.
    this.#bash.write("shopt -s expand_aliases; trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT");
  }

  /** What the block prints. Rejects if its last command fails. */
  async type(block: string): Promise<string> {
    const { code, printed } = await this.run(block);
    if (code !== 0) throw new Error(`ended with ${code}:\n${block}\n${printed}`);
    return printed;
  }

  /** How its last command ends, and what the block prints. */
  async run(block: string): Promise<{ readonly code: number; readonly printed: string }> {
    this.#blocks += 1;
    const begin = `begin ${this.#blocks}`;
    const end = new RegExp(`^end ${this.#blocks} (\\d+)$`);
    this.#bash.write(`echo '${begin}'\n${block}\ncode=$?; echo; echo "end ${this.#blocks} $code"`);
    const [, code] = await this.#bash.line(end, patience);
    const lines = this.#bash.lines;
    const from = lines.lastIndexOf(begin) + 1;
    const to = lines.findIndex((line, at) => at >= from && end.test(line));
    const printed = `${lines
      .slice(from, to)
      .map((line) => line.trimEnd())
      .join('\n')
      .trimEnd()}\n`;
    return { code: Number(code), printed };
  }

  /** Types the block until it prints what the page shows. */
  async shows(block: string, expected: string): Promise<void> {
    const pattern = patternOf(expected);
    const check = async () => {
      const printed = await this.type(block);
      if (!pattern.test(printed)) throw new Error(`${block}\nprints\n${printed}\n\ninstead of\n${expected}`);
    };
    try {
      await eventually(check, { timeout: patience, pause: 500 });
    } catch (cause) {
      const logs = await this.type('tail -n 5 *.log || true');
      throw new Error(`${String(cause)}\nthe logs of what runs in the background:\n${logs}`, { cause });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#bash.write('exit');
    await this.#bash.exited;
  }
}

/** An ellipsis stands for anything; one that is a line of its own for any lines. Widths of columns do not matter. */
function patternOf(expected: string): RegExp {
  const lines = expected.trim().split('\n');
  return new RegExp(`^${lines.map(lineOf).join('')}$`);
}

function lineOf(line: string): string {
  if (line.trim() === '…') return '(?:.*\\n)*?';
  const parts = line.trimEnd().split('…');
  return `${parts.map((part) => escaped(part).replaceAll(/\s+/g, '\\s+')).join('.*')}\\n`;
}

const escaped = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
