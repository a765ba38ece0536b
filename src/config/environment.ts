/** The process's environment, or a test's. */
export type Environment = Readonly<Record<string, string | undefined>>;

export interface Expanded {
  readonly text: string;
  /** The text has a reference to the environment, whether or not the variable is set. */
  readonly substituted: boolean;
  /** One message for each reference that failed. */
  readonly failures: readonly string[];
}

const reference = /\$\$\{|\$\{(?:(?<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?<fallback>[^}]*))?\})?/g;

/**
 * Replaces `${NAME}` and `${NAME:-default}` (taken when NAME is unset or empty, as in a shell); `$${` stands for the
 * characters `${`. What was put in is not expanded again.
 */
export function expand(text: string, environment: Environment): Expanded {
  const failures: string[] = [];
  let substituted = false;
  let result = '';
  let end = 0;
  for (const match of text.matchAll(reference)) {
    result += text.slice(end, match.index);
    end = match.index + match[0].length;
    const name = match.groups?.['name'];
    if (match[0] === '$${') {
      result += '${';
    } else if (name === undefined) {
      failures.push(
        '"${" begins a reference to the environment: use ${NAME} or ${NAME:-default}; write $${ for a literal ${',
      );
    } else {
      substituted = true;
      const fallback = match.groups?.['fallback'];
      const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
      if (value === undefined && fallback === undefined) {
        failures.push(
          `the environment variable ${name} is not set: set it, or give a default as in \${${name}:-default}`,
        );
      }
      result += (fallback === undefined ? value : value || fallback) ?? '';
    }
  }
  return { text: result + text.slice(end), substituted, failures };
}
