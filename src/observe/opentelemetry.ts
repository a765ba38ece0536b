/**
 * What the relay uses of OpenTelemetry's SDK. `npm run build` puts it into this file of dist/: installed, its packages
 * would be a third of all dependencies (ADR 20).
 */
export { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
export { resourceFromAttributes } from '@opentelemetry/resources';
export {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
