/** As package.json's `engines` says. Here, because an older Node may not be able to read another module of the relay. */
const needed = { major: 24, minor: 12 };

/** What to tell somebody whose Node is too old; undefined: it will do. `version` is as in process.versions.node. */
export function outdatedNode(version: string, path: string): string | undefined {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major > needed.major || (major === needed.major && minor >= needed.minor)) return undefined;
  return `distributary needs Node.js ${needed.major}.${needed.minor} or newer; ${path} is ${version}`;
}
