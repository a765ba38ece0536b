import { globSync } from 'node:fs';
import { expect } from 'chai';
import { root } from '../e2e/support/paths.ts';
import { read } from './page.ts';

/** Where Envoy is told to ask over gRPC: the key, and what stands below it or beside it in braces. */
function* sourcesOf(text: string): Iterable<string> {
  for (const found of text.matchAll(
    /^( *)(?:- +)?["']?(?:ads_config|api_config_source)["']?:(.*)\n((?:\1 +.*\n| *\n)*)/gm,
  )) {
    const [, , beside = '', below = ''] = found;
    if (/api_type["']?: *["']?(?:AGGREGATED_)?(?:DELTA_)?GRPC/.test(beside + below)) yield beside + below;
  }
  for (const [inBraces] of text.matchAll(
    /\{[^\n]*\b(?:ads_config|api_config_source)["']?: *\{[^\n]*GRPC[^\n]*/g,
  ))
    yield inBraces;
}

const once = /set_node_on_first_message_only["']?: *true/;

describe('Envoy bootstraps in documents, charts and recipes', () => {
  it('send the node once: else each request has 61 KB more', () => {
    const files = globSync('{*.md,{docs,deploy,src/commands}/**/*.{md,yaml,yml,json,tpl,txt,ts}}', {
      cwd: root,
    });
    const sources = files.flatMap((file) => [...sourcesOf(read(file))].map((source) => ({ file, source })));
    expect(sources.length).to.be.at.least(6);
    const wrong = sources.filter(({ source }) => !once.test(source)).map(({ file }) => file);
    expect(wrong).to.deep.equal([]);
  });
});
