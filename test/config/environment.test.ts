import { expect } from 'chai';
import { expand } from '../../src/config/document.ts';
import { withoutReferences } from '../../src/config/load.ts';
import { configOf, expectProblems, minimal, problemsOf } from './support.ts';

const environment = { NAME: 'relay', EMPTY: '', NESTED: '${NAME}', PORT: '18000', YES: 'true' };

describe('configuration: references to the environment', () => {
  const rows: readonly (readonly [string, string])[] = [
    ['${NAME}', 'relay'],
    ['a-${NAME}:${PORT}', 'a-relay:18000'],
    ['${NAME:-other}', 'relay'],
    ['${UNSET:-other}', 'other'],
    ['${UNSET:-}', ''],
    ['${EMPTY:-other}', 'other'],
    ['${EMPTY}', ''],
    ['${UNSET:-a:-b $c}', 'a:-b $c'],
    ['$${NAME}', '${NAME}'],
    ['$NAME $ $$ {NAME}', '$NAME $ $$ {NAME}'],
    ['${NESTED}', '${NAME}'],
  ];
  for (const [text, expected] of rows) {
    it(`${text} becomes ${JSON.stringify(expected)}`, () => {
      expect(expand(text, environment)).to.deep.include({ text: expected, failures: [] });
    });
  }

  it('an unset variable without a default is an error at its place, and only that', () => {
    expectProblems(problemsOf(`${minimal}xds:\n  address: "\${HOST}:\${PORT}"\n`, { PORT: '1' }), [
      '5:12: xds.address: the environment variable HOST is not set: set it, or give a default as in ${HOST:-default}',
    ]);
  });

  it('properties of every object are no variables', () => {
    expectProblems(problemsOf(`${minimal}node: { id: "\${constructor}" }\n`), [
      '4:13: node.id: the environment variable constructor is not set',
    ]);
  });

  for (const text of ['${}', '${1A}', '${A', '${A:b}', '${A B}']) {
    it(`${text} is no reference`, () => {
      expectProblems(problemsOf(`${minimal}node: { id: '${text}' }\n`), [
        '4:13: node.id: "${" begins a reference to the environment',
      ]);
    });
  }

  for (const text of ['${A:-${B}}', '${A:-a ${B:-b}}', '${A:-$${B}}']) {
    it(`${text}: a default has no reference in it`, () => {
      for (const given of [{}, { A: 'a' }]) {
        expectProblems(problemsOf(`${minimal}node: { id: '${text}' }\n`, given), [
          '4:13: node.id: the default of ${A} may not contain "${": a default is plain text, and ends with the first "}"',
        ]);
      }
    });
  }

  it('what follows a reference without an end is not read', () => {
    expect(expand('${A:-'.repeat(1000), environment).failures).to.have.length(1);
  });

  it('without its references a file means the same to a process with another environment', () => {
    const to = 'node.id=${NAME}~$${ns}~$${ns}.svc';
    const text = `${minimal}parameters: [{ key: ns, from: node.metadata.ns, to: "${to}" }]\n`;
    const [rule] = configOf(withoutReferences(text, environment)).parameters;
    expect(rule?.to).to.equal('node.id=relay~${ns}~${ns}.svc');
  });

  it('a number or a boolean may come from there', () => {
    const text = `${minimal}limits: { max_streams: "\${PORT}" }\nparameters: [{ key: a, from: node.id, trusted: "\${YES}" }]\n`;
    const config = configOf(text, environment);
    expect(config.limits.maxStreams).to.equal(18_000);
    expect(config.parameters[0]?.trusted).to.equal(true);
  });

  it('also where a mapping or false is accepted', () => {
    const history = (text: string, given = {}) => configOf(`${minimal}history: ${text}\n`, given).history;
    expect(history('{ max_bytes: "${N}" }', { N: '1000' })?.maxBytes).to.equal(1000);
    expect(history('"${H:-false}"')).to.equal(undefined);
    expectProblems(problemsOf(`${minimal}history: "\${H:-true}"\n`), [
      '4:10: history: expected false or a mapping, got the string "true"',
    ]);
  });

  it('one that is no number is an error', () => {
    expectProblems(problemsOf(`${minimal}limits:\n  max_streams: \${NAME}\n`, environment), [
      '5:16: limits.max_streams: expected a number, got the string "relay"',
    ]);
  });

  it('a number from there keeps to its bounds', () => {
    expectProblems(problemsOf(`${minimal}limits:\n  max_streams: \${N}\n`, { N: '0' }), [
      '5:16: limits.max_streams: must be at least 1',
    ]);
  });

  it('a string of digits that the file has is no number', () => {
    expectProblems(problemsOf(`${minimal}limits:\n  max_streams: "5"\n`), [
      '5:16: limits.max_streams: expected a number, got the string "5"',
    ]);
  });
});
