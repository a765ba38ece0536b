import { expect } from 'chai';
import { envs, everything, Replicas } from './replicas.ts';

const seeds = 25;

describe('simulated replicas without a control plane', () => {
  it(`killed and replaced one after the other: every client has everything all the time (${seeds} seeds)`, async function () {
    this.timeout(300_000);
    for (let seed = 1; seed <= seeds; seed++) {
      const replicas = new Replicas(seed);
      const { random, plane } = replicas;
      const pick = () => random.pick([...replicas.hosts.values()]);
      for (let count = random.between(2, 5); count > 0; count--) replicas.start();
      for (const env of envs) replicas.serve(pick(), env);
      for (let more = random.between(0, 6); more > 0; more--) replicas.serve(pick(), random.pick(envs));
      await replicas.run(500, () => {});
      plane.set(false);
      const all = everything(plane.contents);
      const isUnharmed = (has: ReturnType<typeof everything>, where: string): void => {
        for (const [at, one] of has.entries())
          if (one !== undefined) expect(one, `seed ${seed}, ${where}`).to.deep.equal(all[at]);
      };
      const hasAll = (has: ReturnType<typeof everything>, where: string): void => {
        expect(has, `seed ${seed}, ${where}`).to.deep.equal(all);
      };
      for (let kills = random.between(1, 8); kills > 0; kills--) {
        const added = replicas.start();
        await replicas.run(random.between(2500, 7500), isUnharmed);
        await replicas.run(50, hasAll);
        expect(added.upstream.state(), `seed ${seed}: ready and stale`).to.include({
          everConnected: true,
          staleSince: 1,
        });
        replicas.kill(random.pick([...replicas.hosts.values()].filter((one) => one !== added)));
      }
      await replicas.run(3000, isUnharmed);
      await replicas.run(50, hasAll);

      plane.contents.delete('c');
      plane.contents.set('d', '2').set('e', '1');
      plane.set(true);
      await replicas.run(200, () => {});
      await replicas.run(50, (has, where) => {
        expect(has, `seed ${seed}, ${where}: as the control plane has it`).to.deep.equal(
          everything(plane.contents),
        );
      });
    }
  });
});
