/** What the relay uses of OpenTelemetry's SDK. Its packages are development dependencies: installed with the others they would be a third of them (ADR 20). */
export { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
export { resourceFromAttributes } from '@opentelemetry/resources';
export {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
