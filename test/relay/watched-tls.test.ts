import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import type { Log } from '../../src/observe/log.ts';
import { Metrics } from '../../src/observe/metrics.ts';
import { readListenerTls } from '../../src/watched-tls.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';

describe('the certificate of a listener', () => {
  it('that changes while the listener is opened is taken by it', async () => {
    using directory = temporaryDirectory();
    const files = {
      certificate: join(directory.path, 'tls.crt'),
      privateKey: join(directory.path, 'tls.key'),
    };
    const put = (pair: Issued): void => {
      writeFileSync(files.certificate, pair.certificate);
      writeFileSync(files.privateKey, pair.privateKey);
    };
    const [first, second] = [issueCertificate({ name: 'first' }), issueCertificate({ name: 'second' })];
    const quiet = (): void => {};
    const log: Log = { debug: quiet, info: quiet, warn: quiet, error: quiet, child: () => log };
    put(first);
    const metrics = new Metrics();
    const config = { ...files, requireClientCertificate: false };
    const read = await readListenerTls(config, { log, metrics }, 'xds');
    if (!read.ok) throw new Error(read.error);
    const { material, follow, close } = read.value;
    try {
      put(second);
      // Longer than files need to settle.
      await setTimeout(500);
      let presented = String(material?.certificate);
      expect(presented).to.equal(first.certificate);
      const reloads = () => metrics.certificates.followed().map((one) => one.reloads.success);
      expect(reloads(), 'in force is what the listener has').to.deep.equal([0]);
      follow({
        setTls(next) {
          presented = String(next.certificate);
        },
      });
      await eventually(() => expect(presented).to.equal(second.certificate));
      expect(reloads()).to.deep.equal([1]);
    } finally {
      close();
    }
  });
});
