import { render } from 'preact';
import type { PageModel } from '../src/admin/page/page-model.ts';
import type { Figure } from '../src/observe/figures.ts';
import { App } from './app.tsx';
import { Live } from './live.ts';
import { followLinks } from './location.ts';
import './style.css';
import { trusted } from './trusted.ts';

interface FirstState {
  readonly model: PageModel;
  readonly figures: readonly Figure[];
}

const root = document.getElementById('app');
const state = document.getElementById('first-state')?.textContent;
if (root !== null && typeof state === 'string') {
  followLinks();
  render(<App live={new Live(trusted<FirstState>(JSON.parse(state)))} />, root);
}
