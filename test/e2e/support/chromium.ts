import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { eventually } from './eventually.ts';
import { root } from './paths.ts';
import { outcome, run } from './process.ts';

/** Whether pages become pictures of the documents. */
export const writesPictures = process.env['SNAPSHOTS'] === 'write';

let found: Promise<Result<string>> | undefined;

/** The path of Debian's `chromium`. With CI=true it is installed where it is missing; the error says why there is none. */
export function chromiumBinary(): Promise<Result<string>> {
  found ??= find();
  return found;
}

async function find(): Promise<Result<string>> {
  const installed = await onPath();
  if (installed !== undefined) return ok(installed);
  const advice = 'Chromium is not installed: apt-get install --no-install-recommends chromium (Debian)';
  if (process.env['CI'] !== 'true') return fail(advice);
  try {
    const sudo = process.getuid?.() === 0 ? [] : ['sudo', '-n'];
    for (const args of [['update'], ['install', '--yes', '--no-install-recommends', 'chromium']]) {
      const [command = '', ...words] = [...sudo, 'apt-get', ...args];
      await run({ command, args: words });
    }
    const path = await onPath();
    return path === undefined ? fail(advice) : ok(path);
  } catch (error) {
    return fail(`${advice}: ${String(error)}`);
  }
}

async function onPath(): Promise<string | undefined> {
  const { code, output } = await outcome({ command: 'sh', args: ['-c', 'command -v chromium'] });
  return code === 0 ? output.trim() : undefined;
}

/** A browser without a window. */
export class TestBrowser implements AsyncDisposable {
  readonly #browser: Browser;

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  static async start(binary: string): Promise<TestBrowser> {
    // In containers there is neither a sandbox nor much shared memory.
    const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'];
    return new TestBrowser(await chromium.launch({ executablePath: binary, args }));
  }

  /** A page of its own context. What the page itself reports as an error ends up in `errors`. */
  async open(url: string, options: BrowserContextOptions = {}): Promise<OpenPage> {
    const context = await this.#browser.newContext(options);
    const page = await context.newPage();
    const opened = new OpenPage(page, new URL(url).origin);
    await page.goto(url);
    return opened;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#browser.close();
  }
}

export class OpenPage implements AsyncDisposable {
  readonly page: Page;
  /** Errors of scripts, and what the page's policy has refused. */
  readonly errors: string[] = [];
  /** Requests that left the relay. */
  readonly foreign: string[] = [];

  constructor(page: Page, origin: string) {
    this.page = page;
    page.on('pageerror', ({ message }) => this.errors.push(message));
    page.on('console', (message) => {
      if (message.type() === 'error') this.errors.push(message.text());
    });
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(origin) && !url.startsWith('data:')) this.foreign.push(url);
    });
  }

  /** With SNAPSHOTS=write the page becomes a picture of the documents. */
  async picture(name: string): Promise<void> {
    if (!writesPictures) return;
    // The charts have a point every 5 s.
    const figures = this.page.locator('figcaption strong');
    if ((await figures.count()) > 0) {
      await eventually(async () => {
        if ((await figures.first().innerText()) === '–') throw new Error('the charts have no point yet');
      });
    }
    const directory = join(root, 'docs/images');
    mkdirSync(directory, { recursive: true });
    await this.page.screenshot({ path: join(directory, `${name}.png`) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.page.context().close();
  }
}
