import type { Message } from '@bufbuild/protobuf';

/** A generated message as a plain value: all its fields, nothing else. `truncated` is set where it is written. */
export type Plain<T> = T extends Message
  ? { [Key in keyof T as Exclude<Key, '$typeName' | '$unknown' | 'truncated'>]: Plain<T[Key]> }
  : T extends readonly (infer Element)[]
    ? Plain<Element>[]
    : T;

/** Other processes may have to be asked first. */
export type Awaitable<T> = T | Promise<T>;
