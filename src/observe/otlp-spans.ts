import { ROOT_CONTEXT, type SpanContext, trace } from '@opentelemetry/api';
import { systemClock, within } from '../model/clock.ts';
import type { Conditions } from './conditions.ts';
import {
  BatchSpanProcessor,
  OTLPTraceExporter,
  ParentBasedSampler,
  resourceFromAttributes,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from './opentelemetry.ts';
import type { Spans } from './update-traces.ts';

/** Spans that wait to be sent; further ones are dropped. Milliseconds else. */
const bounds = {
  maxQueueSize: 2048,
  maxExportBatchSize: 256,
  scheduledDelayMillis: 1000,
  exportTimeoutMillis: 5000,
};
/** Characters of an attribute: some are chosen by peers. */
const longestAttribute = 256;
/** How long the end of the relay waits for the collector. Milliseconds. */
const lastExportMs = 1000;

/**
 * Spans by OpenTelemetry's SDK. Only `openTraces` imports this module: the SDK is loaded if it is used. `endpoint`: of the
 * collector; `/v1/traces` is added unless it is there. `ratio`: 0 to 1. `instance`: who the process is.
 */
export function otlpSpans(
  endpoint: string,
  ratio: number,
  version: string,
  instance: string,
  conditions: Conditions,
): Spans {
  const exporter = new OTLPTraceExporter({
    url: endpoint.replace(/(?:\/v1\/traces)?\/*$/, '/v1/traces'),
    timeoutMillis: bounds.exportTimeoutMillis,
  });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': 'distributary',
      'service.version': version,
      'service.instance.id': instance,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
    spanLimits: { attributeValueLengthLimit: longestAttribute },
    spanProcessors: [
      new BatchSpanProcessor({ exporter: reporting(exporter, endpoint, conditions), ...bounds }),
    ],
  });
  const tracer = provider.getTracer('distributary', version);
  return {
    start(name, at, attributes, parent) {
      const above = parentOf(parent);
      const context = above === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, above);
      // From the monotonic clock to the epoch.
      const offset = systemClock.now() - systemClock.monotonic();
      const span = tracer.startSpan(name, { startTime: at + offset, attributes }, context);
      if (!span.isRecording()) return undefined;
      const within = trace.setSpan(ROOT_CONTEXT, span);
      return {
        child: (part, from, until, attributes = {}) =>
          tracer.startSpan(part, { startTime: from + offset, attributes }, within).end(until + offset),
        end(until, attributes = {}) {
          span.setAttributes(attributes);
          span.end(until + offset);
        },
      };
    },
    async stop() {
      // The reason why nobody takes them was logged.
      const exported = provider.shutdown().catch(() => undefined);
      await within(systemClock, lastExportMs, exported);
    },
  };
}

/** The same exporter, which also tells the log when the collector takes nothing, and when it does again. */
function reporting(exporter: SpanExporter, endpoint: string, conditions: Conditions): SpanExporter {
  let failing = false;
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        const failed = result.error !== undefined;
        if (failed) {
          const reason = result.error?.message ?? '';
          conditions.set('tracing', 'away', 'warn', 'the OTLP collector does not accept traces', {
            endpoint,
            reason,
          });
        } else if (failing) {
          conditions.set('tracing', 'here', 'info', 'the OTLP collector accepts traces again', { endpoint });
        }
        failing = failed;
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
  };
}

const form = /^(?!ff)[0-9a-f]{2}-(?<trace>[0-9a-f]{32})-(?<span>[0-9a-f]{16})-(?<flags>[0-9a-f]{2})(?:$|-)/;

/** Of a W3C traceparent; undefined: there is none, or it is malformed, which counts as none. */
export function parentOf(header: string | undefined): SpanContext | undefined {
  const found = header === undefined ? undefined : form.exec(header)?.groups;
  const { trace: traceId = '', span: spanId = '', flags = '' } = found ?? {};
  if (!/[1-9a-f]/.test(traceId) || !/[1-9a-f]/.test(spanId)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
}
