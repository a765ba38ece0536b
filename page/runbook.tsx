import { useEffect, useState } from 'preact/hooks';
import { Copyable } from './copyable.tsx';
import { hrefOf } from './location.ts';
import { blocksOf, type MarkdownBlock } from './runbook-blocks.ts';

/** A page of docs/runbooks, from this relay: it must be there when nothing else is. */
export function Runbook({ name }: { readonly name: string }) {
  const [text, setText] = useState('');
  const [error, setError] = useState('');
  useEffect(() => {
    let current = true;
    const read = async (): Promise<void> => {
      const response = await fetch(`runbooks/${encodeURIComponent(name)}`);
      const body = await response.text();
      if (!current) return;
      setText(response.ok ? body : '');
      setError(response.ok ? '' : `There is no runbook ${name} here.`);
    };
    read().catch((failure: unknown) => setError(String(failure)));
    return () => {
      current = false;
    };
  }, [name]);
  return (
    <article class="runbook">
      <p>
        <a href={location.pathname}>← overview</a>
      </p>
      {error !== '' && <p class="bad">{error}</p>}
      {blocksOf(text).map((block, index) => (
        <Block key={index} block={block} />
      ))}
    </article>
  );
}

function Block({ block: { kind, lines, start } }: { readonly block: MarkdownBlock }) {
  if (kind === 'pre') return <pre tabIndex={0}>{lines.join('\n')}</pre>;
  if (kind === 'sh') {
    return (
      <div class="typed">
        {lines.map((line) => (
          <Copyable key={line} text={line} />
        ))}
      </div>
    );
  }
  if (kind === 'ul' || kind === 'ol') {
    const List = kind;
    return (
      <List {...(start === undefined ? {} : { start })}>
        {lines.map((line) => (
          <li key={line}>
            <Words text={line} />
          </li>
        ))}
      </List>
    );
  }
  const Tag = kind;
  return (
    <Tag>
      <Words text={lines.join(' ')} />
    </Tag>
  );
}

/** Code, links, and words between them. */
function Words({ text }: { readonly text: string }) {
  const parts = text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/);
  return (
    <>
      {parts.map((part, index) => {
        if (part.startsWith('`')) return <Code key={index} text={part.slice(1, -1)} />;
        const [, words = '', target = ''] = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part) ?? [];
        return target === '' ? part : <Link key={index} words={words} target={target} />;
      })}
    </>
  );
}

/** What can be typed as it stands can be copied. */
function Code({ text }: { readonly text: string }) {
  const isCommand = /^(distributary|openssl|curl|kubectl|topk|rate|histogram_quantile)[ (]/.test(text);
  return isCommand ? <Copyable text={text} /> : <code>{text}</code>;
}

/** Other documents do not come with the relay: their path is said. */
function Link({ words, target }: { readonly words: string; readonly target: string }) {
  const [, runbook = ''] = /^([a-z-]+)\.md$/.exec(target) ?? [];
  const label = words.replaceAll('`', '');
  if (runbook !== '') return <a href={hrefOf({ show: 'runbook', name: runbook })}>{label}</a>;
  if (/^https?:/.test(target)) return <a href={target}>{label}</a>;
  const path = target.replace(/^\.\.\/(\.\.\/)?/, (_, up) => (up === undefined ? 'docs/' : ''));
  if (label === path) return label;
  return (
    <>
      {label} <span class="dim">({path})</span>
    </>
  );
}
