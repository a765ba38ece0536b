import { createServer, type Server } from 'node:http';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

export interface CollectedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: the first of its trace. */
  readonly parentId: string;
  /** Nanoseconds since the epoch. */
  readonly from: bigint;
  readonly until: bigint;
  readonly attributes: ReadonlyMap<string, string | number>;
  /** Of the process. */
  readonly resource: ReadonlyMap<string, string | number>;
}

/** A collector of traces: OTLP over HTTP, as protobuf. */
export class OtlpCollector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<OtlpCollector> {
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const isTraces = request.method === 'POST' && request.url === '/v1/traces';
        if (isTraces) collector.spans.push(...spansOf(Buffer.concat(chunks)));
        response.writeHead(isTraces ? 200 : 404, { 'content-type': 'application/x-protobuf' }).end();
      });
    });
    const collector = new OtlpCollector(server);
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    return collector;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  }

  /** The first of the traces that have these attributes. */
  roots(name: string, wanted: Readonly<Record<string, string | number>>): readonly CollectedSpan[] {
    return this.spans.filter(
      (span) =>
        span.name === name &&
        Object.entries(wanted).every(([key, value]) => span.attributes.get(`distributary.${key}`) === value),
    );
  }

  below(root: CollectedSpan): readonly CollectedSpan[] {
    return this.spans.filter(({ parentId, traceId }) => parentId === root.spanId && traceId === root.traceId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => {
      this.#server.close(resolve);
    });
  }
}

type Value = Uint8Array | bigint | number;

/** The fields of a message: enough of opentelemetry/proto/trace/v1/trace.proto to read what is tested. */
function fields(bytes: Uint8Array): ReadonlyMap<number, readonly Value[]> {
  const found = new Map<number, Value[]>();
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    const values = found.get(field) ?? [];
    found.set(field, values);
    if (wire === WireType.LengthDelimited) values.push(reader.bytes());
    else if (wire === WireType.Varint) values.push(Number(reader.int64()));
    else if (wire === WireType.Bit64) values.push(BigInt(reader.fixed64()));
    else reader.skip(wire, field);
  }
  return found;
}

const messages = (of: ReadonlyMap<number, readonly Value[]>, field: number) =>
  (of.get(field) ?? []).filter((value) => value instanceof Uint8Array);

const hex = (of: ReadonlyMap<number, readonly Value[]>, field: number): string =>
  Buffer.from(messages(of, field)[0] ?? new Uint8Array()).toString('hex');

const text = (of: ReadonlyMap<number, readonly Value[]>, field: number): string =>
  Buffer.from(messages(of, field)[0] ?? new Uint8Array()).toString();

const time = (of: ReadonlyMap<number, readonly Value[]>, field: number): bigint =>
  of.get(field)?.find((value) => typeof value === 'bigint') ?? 0n;

function attributesOf(of: ReadonlyMap<number, readonly Value[]>, field: number) {
  return new Map(
    messages(of, field).map((bytes): [string, string | number] => {
      const attribute = fields(bytes);
      const value = fields(messages(attribute, 2)[0] ?? new Uint8Array());
      const number = value.get(3)?.[0];
      return [text(attribute, 1), typeof number === 'number' ? number : text(value, 1)];
    }),
  );
}

function spansOf(body: Uint8Array): readonly CollectedSpan[] {
  return messages(fields(body), 1).flatMap((bytes) => {
    const ofProcess = fields(bytes);
    const resource = attributesOf(fields(messages(ofProcess, 1)[0] ?? new Uint8Array()), 1);
    return messages(ofProcess, 2).flatMap((scope) =>
      messages(fields(scope), 2).map((span) => {
        const of = fields(span);
        return {
          name: text(of, 5),
          traceId: hex(of, 1),
          spanId: hex(of, 2),
          parentId: hex(of, 4),
          from: time(of, 7),
          until: time(of, 8),
          attributes: attributesOf(of, 9),
          resource,
        };
      }),
    );
  });
}
