import type { SpanContext } from '@opentelemetry/api';

const form = /^(?!ff)[0-9a-f]{2}-(?<trace>[0-9a-f]{32})-(?<span>[0-9a-f]{16})-(?<flags>[0-9a-f]{2})(?:$|-)/;

/** Of a W3C traceparent; undefined: there is none, or it is malformed, which counts as none. */
export function parentOf(header: string | undefined): SpanContext | undefined {
  const found = header === undefined ? undefined : form.exec(header)?.groups;
  const { trace: traceId = '', span: spanId = '', flags = '' } = found ?? {};
  if (!/[1-9a-f]/.test(traceId) || !/[1-9a-f]/.test(spanId)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
}
