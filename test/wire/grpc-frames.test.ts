import { expect } from 'chai';
import fc from 'fast-check';
import { Deframer, frameOf, prefixOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';

interface Collector {
  readonly messages: string[];
  readonly deframer: Deframer;
}

function collector(maxBytes = 1 << 20, encoding?: string): Collector {
  const messages: string[] = [];
  const deframer = new Deframer(
    { message: (bytes) => messages.push(bytes.toString('latin1')) },
    maxBytes,
    'limits.max_request_bytes',
    encoding,
  );
  return { messages, deframer };
}

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const ends = [...new Set(at.map((n) => n % (bytes.length + 1))), bytes.length].toSorted((a, b) => a - b);
  let start = 0;
  return ends.map((end) => {
    const chunk = bytes.subarray(start, end);
    start = end;
    return chunk;
  });
}

const someMessages = fc.array(fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)));

describe('gRPC frames', () => {
  it('any chunking gives the same messages', () => {
    fc.assert(
      fc.property(someMessages, fc.array(fc.nat()), (messages, cuts) => {
        const { deframer, messages: got } = collector();
        for (const chunk of cut(Buffer.concat(messages.map(frameOf)), cuts)) {
          expect(deframer.push(chunk)).to.equal(undefined);
        }
        expect(deframer.end()).to.equal(undefined);
        expect(got).to.deep.equal(messages.map((message) => message.toString('latin1')));
      }),
    );
  });

  it('nothing is delivered while paused, and nothing is lost', () => {
    fc.assert(
      fc.property(
        someMessages,
        fc.array(fc.nat()),
        fc.infiniteStream(fc.boolean()),
        (messages, cuts, toss) => {
          const got: string[] = [];
          const deframer: Deframer = new Deframer(
            {
              message(bytes) {
                expect(deframer.paused).to.equal(false);
                got.push(bytes.toString('latin1'));
                if (toss.next().value === true) deframer.pause();
              },
            },
            1000,
            'x',
          );
          for (const chunk of cut(Buffer.concat(messages.map(frameOf)), cuts)) {
            deframer.push(chunk);
            if (toss.next().value === true) deframer.resume();
          }
          while (deframer.paused) deframer.resume();
          expect(got).to.deep.equal(messages.map((message) => message.toString('latin1')));
        },
      ),
    );
  });

  it('what is held of a chunk does not keep the rest of it', () => {
    const chunk = Buffer.concat([frameOf(Buffer.alloc(1000)), frameOf(Buffer.from('held'))]);
    const { deframer, messages } = collector();
    const [first, second] = cut(chunk, [1005]);
    deframer.push(first ?? chunk);
    deframer.pause();
    deframer.push(second ?? chunk);
    chunk.fill(0xff);
    deframer.resume();
    expect(messages.at(-1)).to.equal('held');
  });

  it('arbitrary bytes never throw, and nothing follows a fault', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
        const { deframer, messages } = collector(50);
        let faulted = false;
        let after = 0;
        for (const chunk of chunks) {
          const before = messages.length;
          if (deframer.push(Buffer.from(chunk)) !== undefined) faulted = true;
          else if (faulted) after += messages.length - before;
        }
        expect(after).to.equal(0);
      }),
    );
  });

  it('a message inside one chunk is a view of it', () => {
    const chunk = frameOf(Buffer.from('hello'));
    let seen: Buffer | undefined;
    const sink = {
      message(bytes: Buffer): void {
        seen = bytes;
      },
    };
    new Deframer(sink, 10, 'x').push(chunk);
    expect(seen?.buffer).to.equal(chunk.buffer);
  });

  it('a message that follows its prefix in one chunk is a view of it, and takes no buffer from the others', () => {
    const held: number[] = [];
    const got: Buffer[] = [];
    const sink = { message: (bytes: Buffer) => got.push(bytes), holds: (bytes: number) => held.push(bytes) };
    const message = Buffer.alloc(1000, 7);
    const deframer = new Deframer(sink, 1 << 20, 'limits.max_request_bytes');
    for (const chunk of [prefixOf(message.length), message]) expect(deframer.push(chunk)).to.equal(undefined);
    expect(held).to.deep.equal([]);
    expect([got.length, got[0]?.equals(message), got[0]?.buffer === message.buffer]).to.deep.equal([
      1,
      true,
      true,
    ]);
  });

  it('a message over the limit is refused by its prefix, naming its size and the limit', () => {
    const { deframer } = collector(4_194_304);
    expect(deframer.push(prefixOf(5_000_000))).to.deep.equal({
      code: Code.RESOURCE_EXHAUSTED,
      message:
        'a request message of 5000000 bytes is over the limit of 4194304 bytes (limits.max_request_bytes)',
    });
  });

  it('a length of 4 GB is not negative', () => {
    const { deframer } = collector();
    const fault = deframer.push(Buffer.from([0, 0xff, 0xff, 0xff, 0xff]));
    expect(fault?.message).to.contain('4294967295 bytes');
  });

  it('a compressed message is INTERNAL without grpc-encoding and UNIMPLEMENTED with one', () => {
    const compressed = Buffer.from([1, 0, 0, 0, 1, 0]);
    expect(collector().deframer.push(compressed)?.code).to.equal(Code.INTERNAL);
    expect(collector(100, 'identity').deframer.push(compressed)?.code).to.equal(Code.INTERNAL);
    const fault = collector(100, 'gzip').deframer.push(compressed);
    expect(fault?.code).to.equal(Code.UNIMPLEMENTED);
    expect(fault?.message).to.contain('gzip');
  });

  it('an end within a prefix or a message is INVALID_ARGUMENT', () => {
    for (const bytes of [Buffer.of(0, 0), Buffer.of(0, 0, 0, 0, 3, 1)]) {
      const { deframer } = collector();
      deframer.push(bytes);
      expect(deframer.end()?.code).to.equal(Code.INVALID_ARGUMENT);
    }
  });

  it('after stop nothing is delivered, not even from the same chunk', () => {
    const got: string[] = [];
    const deframer: Deframer = new Deframer(
      {
        message(bytes) {
          got.push(bytes.toString());
          deframer.stop();
        },
      },
      100,
      'x',
    );
    deframer.push(Buffer.concat([frameOf(Buffer.from('a')), frameOf(Buffer.from('b'))]));
    expect(got).to.deep.equal(['a']);
  });

  it('the size that a prefix promises is not allocated before it comes', () => {
    const { deframer } = collector(2 ** 30);
    const start = Buffer.concat([prefixOf(2 ** 30), Buffer.alloc(1)]);
    const before = process.memoryUsage().arrayBuffers;
    deframer.push(start);
    expect(process.memoryUsage().arrayBuffers - before).to.be.lessThan(1 << 20);
  });
});
