import { expect } from 'chai';
import type { DeltaDiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { contentOf, type DeltaClient, InMemoryRelay, node, put, type } from '../support/in-memory-relay.ts';

const cds = type('cds');
const rds = type('rds');

/** A delta client whose routes have never been answered by it: clusters that upstream removes stay for the grace. */
class Setting {
  readonly lab = new InMemoryRelay({ limits: { removalGraceMilliseconds: 15_000 } });
  readonly client: DeltaClient = this.lab.delta();

  constructor(request: Parameters<DeltaClient['send']>[1], first: Readonly<Record<string, string>>) {
    this.client.send('cds', request);
    this.lab.full('cds', first);
  }

  /** From now on removals wait. */
  routes(): void {
    this.client.send('rds', { resourceNamesSubscribe: ['r'] });
    this.lab.says({ type: rds, puts: [put(rds, 'r', '1')] });
    this.read();
  }

  /** What has come of clusters, and with what body. */
  read(): readonly DeltaDiscoveryResponse[] {
    return this.client.received().filter(({ typeUrl }) => typeUrl === cds);
  }

  told(): readonly string[] {
    return this.read().flatMap((response) => {
      this.client.ack('cds', response);
      const bodies = response.resources.map(
        ({ name, resource }) => `${name}=${resource ? contentOf(resource) : ''}`,
      );
      return [...bodies, ...response.removedResources.map((name) => `-${name}`)];
    });
  }
}

describe('what comes back while its removal waits is sent again where the client may lack it (§8.6)', () => {
  it('as it has rejected the response that had it', () => {
    const setting = new Setting({}, { x: '1', y: '1' });
    setting.told();
    setting.routes();
    setting.lab.full('cds', { x: 'bad', y: '2' });
    const [rejected] = setting.read();
    setting.lab.full('cds', { x: 'bad' });
    if (rejected !== undefined) setting.client.nack('cds', rejected);
    setting.read();
    setting.lab.full('cds', { x: 'bad', y: '2' });
    expect(setting.told()).to.deep.equal(['y=2']);
  });

  it('as it rejects alone what was removed meanwhile', () => {
    const setting = new Setting({}, { y: '1' });
    setting.told();
    setting.routes();
    setting.lab.full('cds', { y: '2' });
    const [rejected] = setting.read();
    setting.lab.full('cds', {});
    if (rejected !== undefined) setting.client.nack('cds', rejected);
    setting.lab.full('cds', { y: '2' });
    expect(setting.told()).to.deep.equal(['y=2']);
  });

  it('as it has dropped it and asks for it again', () => {
    const setting = new Setting({ resourceNamesSubscribe: ['x', 'z'] }, { x: '1', z: '1' });
    const outstanding = setting.read();
    setting.routes();
    setting.client.send('cds', { resourceNamesUnsubscribe: ['x'] });
    setting.lab.full('cds', { z: '1' });
    setting.client.send('cds', { resourceNamesSubscribe: ['x'] });
    for (const response of [...outstanding, ...setting.read()]) setting.client.ack('cds', response);
    setting.lab.full('cds', { x: '1', z: '1' });
    expect(setting.told()).to.deep.equal(['x=1']);
  });

  it('as its own timer has ended it: with the body', () => {
    const setting = new Setting({ node: node({}, ['xds.config.supports-resource-ttl']) }, {});
    const says = (ttlMilliseconds?: number): void => {
      const puts = ttlMilliseconds === undefined ? [] : [put(cds, 'x', '1', { ttlMilliseconds })];
      setting.lab.says({ type: cds, puts, complete: true });
    };
    says(3000);
    setting.told();
    setting.routes();
    setting.lab.clock.advance(1000);
    says();
    setting.lab.clock.advance(3000);
    setting.lab.settle();
    says(30_000);
    expect(setting.told()).to.deep.equal(['x=1']);
  });
});
