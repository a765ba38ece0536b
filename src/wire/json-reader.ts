import { isUtf8 } from 'node:buffer';

/** Of objects and lists inside each other. */
const mostDepth = 100;

/** What is wrong, and where: `a text is accepted at byte 12, in node.id`. */
export class JsonFault extends Error {
  /** It is no JSON, or goes beyond the bounds, or is not the JSON that was asked for. */
  readonly kind: 'malformed' | 'beyond' | 'unexpected';

  constructor(kind: JsonFault['kind'], message: string) {
    super(message);
    this.kind = kind;
  }
}

/** An object as JSON of so many values, those too that are left out: these fields, which hold objects that nobody reads. */
export function jsonWithout(ignored: readonly string[], bytes: Buffer, mostValues: number): string {
  const reader = new JsonReader(bytes, mostValues);
  const fields: string[] = [];
  if (reader.kind() !== 'object') reader.refuse('an object is expected');
  for (const key of reader.keys()) {
    if (!ignored.includes(key)) {
      fields.push(`${JSON.stringify(key)}:${reader.passed()}`);
      continue;
    }
    if (!['object', 'literal'].includes(reader.kind())) reader.refuse('an object is expected');
    reader.skip();
  }
  reader.end();
  return `{${fields.join()}}`;
}

/** As JSON writes numbers; protobuf takes them in quotes too. */
const jsonNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const tab = 0x09;
const newline = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quote = 0x22;
const plus = 0x2b;
const comma = 0x2c;
const minus = 0x2d;
const point = 0x2e;
const digit0 = 0x30;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const letterE = 0x65;
const letterN = 0x6e;
const letterU = 0x75;
const openBrace = 0x7b;
const closeBrace = 0x7d;

const hex4 = /^[\da-f]{4}$/i;
const escapes = new Set(Buffer.from('"\\/bfnrt'));
const literals: ReadonlyMap<number, Buffer> = new Map(
  ['null', 'true', 'false'].map((text) => [text.charCodeAt(0), Buffer.from(text)]),
);
/** Of a path in a message. */
const longestPlace = 200;

/**
 * Reads JSON from its bytes, value by value. Only what is asked for is built; `skip` passes over the rest, and checks it
 * all the same. Every method throws a `JsonFault` where the text is not what it reads.
 */
export class JsonReader {
  readonly #bytes: Buffer;
  readonly #mostValues: number;
  readonly #mostDepth: number;
  readonly #path: (string | number)[] = [];
  #at = 0;
  #depth = 0;
  #values = 0;
  /** Of the text that was passed last, without its quotes. */
  #start = 0;
  #isEscaped = false;

  /** `mostValues`: objects, lists, texts, numbers and literals, also those that are skipped. `depth`: of objects and lists. */
  constructor(bytes: Buffer, mostValues: number, depth = mostDepth) {
    this.#bytes = bytes;
    this.#mostValues = mostValues;
    this.#mostDepth = depth;
    if (!isUtf8(bytes)) throw new JsonFault('malformed', 'it is not UTF-8');
  }

  /** Where the next value begins, or what is behind the last one. */
  get position(): number {
    this.#next();
    return this.#at;
  }

  /** Of an object: before the next key, the value of this one must be read or skipped. */
  *keys(): Generator<string, void, undefined> {
    if (this.#begin() !== openBrace) this.refuse('an object is expected');
    const { length } = this.#path;
    for (let more = this.#opens(closeBrace); more; more = this.#hasMore(closeBrace)) {
      const key = this.#key();
      this.#path[length] = key;
      yield key;
    }
    this.#depth--;
    this.#path.length = length;
  }

  /** Of a list, by their indices: before the next one, this one must be read or skipped. */
  *elements(): Generator<number, void, undefined> {
    if (this.#begin() !== openBracket) this.refuse('a list is expected');
    const { length } = this.#path;
    let index = 0;
    for (let more = this.#opens(closeBracket); more; more = this.#hasMore(closeBracket)) {
      this.#path[length] = index;
      yield index++;
    }
    this.#depth--;
    this.#path.length = length;
  }

  text(): string {
    if (this.#begin() !== quote) this.refuse('a string is expected');
    this.#passText();
    return this.#passedText();
  }

  /** A number, in quotes too, as protobuf's JSON has it. */
  number(): number {
    if (this.#next() === quote) {
      const text = this.text();
      return jsonNumber.test(text) ? Number(text) : this.refuse('a number is expected');
    }
    if (this.kind() !== 'number') this.refuse('a number is expected');
    const start = this.#at;
    this.skip();
    return Number(this.#bytes.toString('latin1', start, this.#at));
  }

  /** Passes it if it is null. */
  isNull(): boolean {
    if (this.#next() !== letterN) return false;
    this.skip();
    return true;
  }

  /** What the next value is, by its first character. */
  kind(): 'object' | 'list' | 'text' | 'literal' | 'number' {
    const byte = this.#next();
    if (byte === openBrace) return 'object';
    if (byte === openBracket) return 'list';
    if (byte === quote) return 'text';
    return literals.has(byte) ? 'literal' : 'number';
  }

  /** Passes over one value, and returns it as it is written. */
  passed(): string {
    const start = this.position;
    this.skip();
    return this.#bytes.toString('utf8', start, this.#at);
  }

  /** Passes over one value of any kind. */
  skip(): void {
    const byte = this.#begin();
    if (byte === quote) this.#passText();
    else if (byte === openBrace) this.#skipParts(closeBrace);
    else if (byte === openBracket) this.#skipParts(closeBracket);
    else this.#passWord(byte);
  }

  /** Nothing may follow. */
  end(): void {
    if (this.position < this.#bytes.length) this.#malformed('there is something after the end');
  }

  /** The value that is there is not what is accepted here. */
  refuse(accepted: string): never {
    if (this.#at >= this.#bytes.length) this.#malformed('it is cut off');
    throw this.#fault('unexpected', accepted);
  }

  #skipParts(close: number): void {
    for (let more = this.#opens(close); more; more = this.#hasMore(close)) {
      if (close === closeBrace) {
        this.#passKeyText();
        this.#passColon();
      }
      this.skip();
    }
    this.#depth--;
  }

  /** An object or list begins here. False: and ends, as it is empty. */
  #opens(close: number): boolean {
    this.#at++;
    if (++this.#depth > this.#mostDepth)
      throw this.#fault('beyond', `nested too deeply: more than ${this.#mostDepth} levels`);
    if (this.#next() !== close) return true;
    this.#at++;
    return false;
  }

  #hasMore(close: number): boolean {
    const byte = this.#next();
    if (byte !== comma && byte !== close) {
      this.#malformed(`"," or ${JSON.stringify(String.fromCharCode(close))} is missing`);
    }
    this.#at++;
    return byte === comma;
  }

  #key(): string {
    this.#passKeyText();
    const key = this.#passedText();
    this.#passColon();
    return key;
  }

  #passKeyText(): void {
    if (this.#next() !== quote) this.#malformed('a key in quotes is missing');
    this.#passText();
  }

  #passColon(): void {
    if (this.#next() !== colon) this.#malformed('":" is missing');
    this.#at++;
  }

  /** The byte with which a value begins. */
  #begin(): number {
    const byte = this.#next();
    if (++this.#values > this.#mostValues)
      throw this.#fault('beyond', `too long: more than ${this.#mostValues} values`);
    return byte;
  }

  /** The byte behind white space; 0 at the end. */
  #next(): number {
    const bytes = this.#bytes;
    let at = this.#at;
    let byte = bytes[at] ?? 0;
    while (byte === space || byte === newline || byte === carriageReturn || byte === tab)
      byte = bytes[++at] ?? 0;
    this.#at = at;
    return byte;
  }

  #passText(): void {
    const bytes = this.#bytes;
    let at = this.#at + 1;
    this.#start = at;
    this.#isEscaped = false;
    for (let byte = bytes[at] ?? 0; byte !== quote; byte = bytes[++at] ?? 0) {
      if (byte < space) {
        this.#at = at;
        this.#malformed(at < bytes.length ? 'a control character in a string' : 'a string does not end');
      }
      if (byte === backslash) at = this.#passEscape(at + 1);
    }
    this.#at = at + 1;
  }

  #passEscape(at: number): number {
    this.#isEscaped = true;
    const byte = this.#bytes[at] ?? 0;
    if (escapes.has(byte)) return at;
    if (byte === letterU && hex4.test(this.#bytes.toString('latin1', at + 1, at + 5))) return at + 4;
    this.#at = at;
    return this.#malformed('an escape that is not valid in JSON');
  }

  #passedText(): string {
    const end = this.#at - 1;
    if (!this.#isEscaped) return this.#bytes.toString('utf8', this.#start, end);
    const text: unknown = JSON.parse(this.#bytes.toString('utf8', this.#start - 1, end + 1));
    if (typeof text !== 'string' || !text.isWellFormed())
      return this.refuse('half a character: UTF-8 is expected');
    return text;
  }

  /** A literal or a number. */
  #passWord(first: number): void {
    const literal = literals.get(first);
    if (literal === undefined) {
      this.#passNumber();
      return;
    }
    const end = this.#at + literal.length;
    if (this.#bytes.compare(literal, 0, literal.length, this.#at, Math.min(end, this.#bytes.length)) !== 0) {
      this.#malformed('a value is missing');
    }
    this.#at = end;
  }

  #passNumber(): void {
    const bytes = this.#bytes;
    let at = this.#at;
    if (bytes[at] === minus) at++;
    at = bytes[at] === digit0 ? at + 1 : this.#digits(at);
    if (bytes[at] === point) at = this.#digits(at + 1);
    if (((bytes[at] ?? 0) | 0x20) === letterE) {
      const sign = bytes[at + 1];
      at = this.#digits(sign === plus || sign === minus ? at + 2 : at + 1);
    }
    this.#at = at;
  }

  /** Where the digits end, of which there must be one. */
  #digits(start: number): number {
    let at = start;
    while (isDigit(this.#bytes[at])) at++;
    if (at > start) return at;
    this.#at = at;
    return this.#malformed('a value is missing');
  }

  #malformed(what: string): never {
    throw this.#fault('malformed', what);
  }

  #fault(kind: JsonFault['kind'], what: string): JsonFault {
    const place = this.#path.length === 0 ? '' : `, in ${this.#path.join('.').slice(0, longestPlace)}`;
    return new JsonFault(kind, `${what} at byte ${this.#at}${place}`);
  }
}

const isDigit = (byte = 0): boolean => byte >= digit0 && byte <= digit0 + 9;
