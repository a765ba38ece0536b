import { render } from 'preact';
import { App } from './app.tsx';
import { Live } from './live.ts';
import { followLinks } from './location.ts';
import './style.css';
import { trusted } from './trusted.ts';

const root = document.getElementById('app');
const state = document.getElementById('first-state')?.textContent;
if (root !== null && typeof state === 'string') {
  followLinks();
  render(<App live={new Live(trusted(JSON.parse(state)))} />, root);
}
