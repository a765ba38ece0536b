import { useRef, useState } from 'preact/hooks';

const shownMs = 2000;

/** A command to type somewhere else, with a button that copies it. */
export function Copyable({ text }: { readonly text: string }) {
  const code = useRef<HTMLElement>(null);
  const [done, setDone] = useState('');
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setDone('copied');
    } catch {
      // Without TLS a browser copies nothing for a page: what is selected can be copied by hand.
      if (code.current !== null) getSelection()?.selectAllChildren(code.current);
      setDone('selected');
    }
    setTimeout(() => setDone(''), shownMs);
  };
  return (
    <span class="copyable">
      <code ref={code}>{text}</code>
      <button type="button" onClick={() => void copy()}>
        {done === '' ? 'copy' : done}
        <span class="hidden"> {text}</span>
      </button>
    </span>
  );
}
