import { expect } from 'chai';
import { formatHostPort, parseAddress } from '../../src/wire/address.ts';

describe('listener addresses', () => {
  it('are HOST:PORT, [IPV6]:PORT or unix:PATH', () => {
    const parsed = ['0.0.0.0:18000', 'localhost:0', '[::1]:80', '[fe80::1%eth0]:1', 'unix:/run/x.sock'].map(
      (text) => {
        const result = parseAddress(text);
        return result.ok ? result.value : result.error;
      },
    );
    expect(parsed).to.deep.equal([
      { kind: 'tcp', host: '0.0.0.0', port: 18_000 },
      { kind: 'tcp', host: 'localhost', port: 0 },
      { kind: 'tcp', host: '::1', port: 80 },
      { kind: 'tcp', host: 'fe80::1%eth0', port: 1 },
      { kind: 'unix', path: '/run/x.sock' },
    ]);
  });

  it('anything else is refused, saying what is accepted', () => {
    for (const text of [
      '',
      'x',
      ':80',
      '::1:80',
      '[::1]',
      'a:',
      'a:-1',
      'a:65536',
      'a b:1',
      'unix:',
      'http://a:1',
    ]) {
      const result = parseAddress(text);
      expect(result.ok ? text : result.error).to.match(/must be HOST:PORT|no path/);
    }
  });

  it('are written with brackets around IPv6', () => {
    expect([formatHostPort('1.2.3.4', 1), formatHostPort('::', 2)]).to.deep.equal(['1.2.3.4:1', '[::]:2']);
  });
});
