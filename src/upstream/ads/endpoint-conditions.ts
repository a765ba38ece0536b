import type { Conditions } from '../../observe/conditions.ts';
import { type Address, formatHostPort } from '../../wire/address.ts';

/** What the log says of the endpoints of an upstream, by their indexes: once per change. */
export class EndpointConditions {
  readonly #endpoints: readonly Address[];
  readonly #conditions: Conditions;

  constructor(endpoints: readonly Address[], conditions: Conditions) {
    this.#endpoints = endpoints;
    this.#conditions = conditions;
  }

  /** As the configuration has it. */
  name(index: number): string {
    const address = this.#endpoints[index];
    if (address === undefined) return '';
    return address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port);
  }

  failed(index: number, reason: string): void {
    this.#add(index, 'warn', 'control plane failed', reason);
  }

  /** Nothing is wrong: many control planes end each connection after some time, so that clients spread. */
  ended(index: number, reason: string): void {
    this.#add(index, 'info', 'the connection has ended, another one is opened', reason);
  }

  recovered(index: number): void {
    for (const known of this.#endpoints.keys()) this.#conditions.forget(`endpoint ${known}`);
    const endpoint = this.name(index);
    this.#conditions.set('up', endpoint, 'info', 'connected to the control plane', { endpoint });
  }

  #add(index: number, level: 'info' | 'warn', message: string, reason: string): void {
    this.#conditions.forget('up');
    const fields = { endpoint: this.name(index), reason };
    this.#conditions.add(`endpoint ${index}`, reason, level, message, fields);
  }
}
