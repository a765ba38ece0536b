import type { Registry } from '@bufbuild/protobuf';
import { envoyRegistry } from './registry.ts';

/** The Envoy API for what is inside Any in JSON; loaded once the first Any is written, not with the server. */
export const lazyEnvoyRegistry: Registry = {
  kind: 'registry',
  [Symbol.iterator]: () => envoyRegistry()[Symbol.iterator](),
  get: (name) => envoyRegistry().get(name),
  getMessage: (name) => envoyRegistry().getMessage(name),
  getEnum: (name) => envoyRegistry().getEnum(name),
  getExtension: (name) => envoyRegistry().getExtension(name),
  getExtensionFor: (extendee, no) => envoyRegistry().getExtensionFor(extendee, no),
  getService: (name) => envoyRegistry().getService(name),
};
