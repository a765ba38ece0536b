import { expect } from 'chai';
import { fillTemplate, nodePath, parseShown, templateKeys } from '../../src/model/node-path.ts';

describe('model/node-path', () => {
  const paths: readonly (readonly [string, readonly string[] | undefined])[] = [
    ['node.id', ['id']],
    ['node.metadata.a.b', ['metadata', 'a', 'b']],
    ['node.metadata["app.kubernetes.io/name"]', ['metadata', 'app.kubernetes.io/name']],
    ['node.metadata.labels["a.b"].c["d"]', ['metadata', 'labels', 'a.b', 'c', 'd']],
    ['node.metadata["a\\"]b"]', ['metadata', 'a"]b']],
    ['node.metadata.a[0]', ['metadata', 'a[0]']],
    ['node.metadata["a"', undefined],
    ['node.metadata[""]', undefined],
    ['node.metadata["a"]b', undefined],
    ['node.metadata.', undefined],
    ['node.metadata.a..b', undefined],
    ['node', undefined],
    ['peer.uri_san', undefined],
  ];
  for (const [text, steps] of paths) it(text, () => expect(nodePath(text)).to.deep.equal(steps));

  it('a path may have a template, and a quoted key an equals sign', () => {
    expect(parseShown('node.id')).to.deep.equal({ path: 'node.id', template: undefined });
    expect(parseShown('node.id=x=${a}')).to.deep.equal({ path: 'node.id', template: 'x=${a}' });
    expect(parseShown('node.metadata["a=b"]=${a}')).to.deep.equal({
      path: 'node.metadata["a=b"]',
      template: '${a}',
    });
  });

  it('a template needs all its parameters, and is not filled again', () => {
    expect(templateKeys('x.${ns}~${env}')).to.deep.equal(['ns', 'env']);
    const values = new Map([
      ['ns', '${env}$&'],
      ['env', 'prod'],
    ]);
    expect(fillTemplate('x.${ns}~${env}', values)).to.equal('x.${env}$&~prod');
    expect(fillTemplate('x.${ns}~${other}', values)).to.equal(undefined);
    expect(fillTemplate('fixed', values)).to.equal('fixed');
  });
});
