import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';

/** Markdown files of the site, from the project's root. */
const pageGlobs = ['*.md', 'docs/**/*.md', 'deploy/**/*.md', 'bench/*.md'];

/**
 * Copies the pages, and the files that they link to, to a directory as they lie here: so links are those of GitHub.
 * Returns the path of the generator's configuration.
 */
export function stagePages(root: string, stage: string): string {
  const pages = globSync(pageGlobs, { cwd: root }).toSorted();
  const directory = join(stage, 'pages');
  for (const path of pages) copy(root, directory, path);
  for (const path of pages) {
    for (const target of linksOf(root, path)) {
      if (pages.includes(target) || !existsSync(join(root, target))) continue;
      if (statSync(join(root, target)).isDirectory()) list(root, directory, target);
      else copy(root, directory, target);
    }
  }
  for (const path of pages) adapt(root, directory, path);
  const config = join(stage, 'mkdocs.yml');
  writeFileSync(config, navigation(readFileSync(join(root, 'docs/site/mkdocs.yml'), 'utf8'), pages));
  return config;
}

const linkPattern = /\]\(([^)#\s:]+)(#[^)]*)?\)/g;

/** What a page links to in the project, from its root. */
function linksOf(root: string, page: string): readonly string[] {
  return [...readFileSync(join(root, page), 'utf8').matchAll(linkPattern)].map(([, target = '']) =>
    normalize(join(dirname(page), target)).replace(/\/$/, ''),
  );
}

function copy(root: string, directory: string, path: string): void {
  mkdirSync(dirname(join(directory, path)), { recursive: true });
  copyFileSync(join(root, path), join(directory, path));
}

/** A page for a directory, because a site of files has none: its files, by name. */
function list(root: string, directory: string, path: string): void {
  if (existsSync(join(directory, path, 'README.md'))) return;
  const files = readdirSync(join(root, path), { withFileTypes: true }).filter((entry) => entry.isFile());
  for (const { name } of files) copy(root, directory, join(path, name));
  mkdirSync(join(directory, path), { recursive: true });
  const lines = files.map(({ name }) => `- [${name}](${name})`);
  writeFileSync(join(directory, path, 'README.md'), `# ${path}\n\n${lines.join('\n')}\n`);
}

/** Links to directories lead to the page in them, and a fence has only the language, which is all that GitHub looks at. */
function adapt(root: string, directory: string, page: string): void {
  const text = readFileSync(join(directory, page), 'utf8');
  const linked = text.replaceAll(linkPattern, (link, target: string, anchor = '') => {
    const path = join(root, dirname(page), target);
    const isDirectory = existsSync(path) && statSync(path).isDirectory();
    return isDirectory ? `](${join(target, 'README.md')}${anchor})` : link;
  });
  writeFileSync(join(directory, page), linked.replaceAll(/^( *```\S+) .*$/gm, '$1'));
}

/** Fills in the parts of the navigation that are whole directories. */
function navigation(config: string, pages: readonly string[]): string {
  const below = (directory: string): readonly string[] =>
    pages
      .filter((path) => path.startsWith(`${directory}/`))
      .toSorted((a, b) => Number(basename(b) === 'README.md') - Number(basename(a) === 'README.md'));
  return [
    ['runbooks', 'docs/runbooks'],
    ['recipes', 'deploy/recipes'],
    ['decisions', 'docs/adr'],
  ].reduce(
    (text, [name = '', directory = '']) =>
      text.replace(new RegExp(`: ${name}$`, 'm'), `: ${JSON.stringify(below(directory))}`),
    config,
  );
}
