import { type Backend, startBackend } from './backend.ts';
import { ControlPlane, type ControlPlaneOptions, controlPlaneBinary } from './controlplane.ts';
import { Envoy, type EnvoyOptions } from './envoy.ts';
import { envoyBinary } from './envoy-binary.ts';
import { RelayProcess, relayCommand, upstream } from './relay.ts';
import { need } from './skip.ts';

/** What suites with an Envoy share: the real program, and two backends. */
export interface EnvoySetting extends AsyncDisposable {
  readonly envoyBinary: string;
  readonly one: Backend;
  readonly two: Backend;
}

/** With a real control plane too. */
export interface Setting extends EnvoySetting {
  readonly controlPlaneBinary: string;
}

export async function prepareEnvoy(context: Mocha.Context): Promise<EnvoySetting> {
  await need(context, relayCommand());
  const binary = await need(context, envoyBinary());
  const one = await startBackend('one');
  const two = await startBackend('two');
  return {
    envoyBinary: binary,
    one,
    two,
    async [Symbol.asyncDispose]() {
      await one[Symbol.asyncDispose]();
      await two[Symbol.asyncDispose]();
    },
  };
}

export async function prepare(context: Mocha.Context): Promise<Setting> {
  const found = await need(context, controlPlaneBinary());
  return { ...(await prepareEnvoy(context)), controlPlaneBinary: found };
}

/** How one conversation goes: Envoy ↔ relay ↔ control plane. */
export interface Way {
  readonly transport: EnvoyOptions['transport'];
  readonly protocol: 'SOTW' | 'DELTA';
  readonly cache: ControlPlaneOptions['cache'];
}

/** Every transport of Envoy, every protocol upstream, both caches; not every combination. */
export const ways: readonly Way[] = [
  { transport: 'ads-sotw', protocol: 'SOTW', cache: 'snapshot' },
  { transport: 'ads-sotw', protocol: 'DELTA', cache: 'linear' },
  { transport: 'ads-delta', protocol: 'DELTA', cache: 'snapshot' },
  { transport: 'ads-delta', protocol: 'SOTW', cache: 'linear' },
  { transport: 'grpc', protocol: 'DELTA', cache: 'snapshot' },
  { transport: 'delta-grpc', protocol: 'SOTW', cache: 'snapshot' },
];

export const titleOf = ({ transport, protocol, cache }: Way): string =>
  `Envoy ${transport}, upstream ${protocol}, go-control-plane ${cache}`;

/** A control plane with a relay before it, and any number of Envoys. */
export class Stage implements AsyncDisposable {
  readonly relay: RelayProcess;
  readonly plane: ControlPlane;
  readonly #setting: Setting;
  readonly #way: Way;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    setting: Setting,
    way: Way,
    plane: ControlPlane,
    relay: RelayProcess,
    stack: AsyncDisposableStack,
  ) {
    this.#setting = setting;
    this.#way = way;
    this.#stack = stack;
    this.plane = plane;
    this.relay = relay;
  }

  static async start(setting: Setting, way: Way, changes: object = {}): Promise<Stage> {
    await using stack = new AsyncDisposableStack();
    const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: way.cache }));
    const backoff = { initial: '100ms', max: '1s' };
    const upstreams = [upstream(plane.address, way.protocol, { backoff, ...changes })];
    const rest = way.transport === 'rest' ? { rest: {} } : {};
    const relay = stack.use(await RelayProcess.start({ upstreams, ...rest }));
    return new Stage(setting, way, plane, relay, stack.move());
  }

  /** One more Envoy of the same kind. */
  async envoy(id: string = 'envoy'): Promise<Envoy> {
    const { transport } = this.#way;
    return this.#stack.use(
      await Envoy.start(this.#setting.envoyBinary, {
        xds: transport === 'rest' ? this.relay.rest : this.relay.xds,
        transport,
        id,
      }),
    );
  }

  async killControlPlane(): Promise<void> {
    await this.plane[Symbol.asyncDispose]();
  }

  /** Another control plane where the first one was. */
  async controlPlaneAgain(): Promise<ControlPlane> {
    const { address } = this.plane;
    const options = { cache: this.#way.cache, address };
    return this.#stack.use(await ControlPlane.start(this.#setting.controlPlaneBinary, options));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
