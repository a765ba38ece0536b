import { expect } from 'chai';
import { Scalar } from 'yaml';
import { parseText } from '../../src/config/document.ts';
import { cases } from '../support/cases.ts';
import { cpuSeconds } from '../support/cpu.ts';
import { costlyConfigurations } from './costly.ts';
import { expectProblems, minimal, problemsOf } from './support.ts';

interface Row {
  readonly rule: string;
  readonly text: string;
  readonly problems: readonly string[];
}

/** One upstream over ADS with these lines in `ads`. */
const ads = (lines: string): string =>
  `upstreams:\n  - name: a\n    ads:\n      endpoints: ["cp:1"]\n      ${lines}\n`;

const tables: ReadonlyMap<string, readonly Row[]> = new Map([
  [
    'keys',
    [
      {
        rule: 'an unknown key suggests the nearest known one',
        text: `${minimal}xds: { adress: "0.0.0.0:1" }\n`,
        problems: ['4:8: xds.adress: unknown key "adress": did you mean "address"?'],
      },
      {
        rule: 'another spelling of a key is recognised',
        text: `${minimal}drainTimeout: 5s\n`,
        problems: ['4:1: drainTimeout: unknown key "drainTimeout": did you mean "drain_timeout"?'],
      },
      {
        rule: 'a key that is cut, or has more to it, is recognised where one alone begins so',
        text: `${minimal}rest: { addr: "0.0.0.0:1" }\nxds: { tls: { cert: c, private_key_file: k } }\n`,
        problems: [
          '4:9: rest.addr: unknown key "addr": did you mean "address"?',
          '5:15: xds.tls.cert: unknown key "cert": did you mean "certificate"?',
          '5:24: xds.tls.private_key_file: unknown key "private_key_file": did you mean "private_key"?',
        ],
      },
      {
        rule: 'a key that resembles none lists those accepted',
        text: `${minimal}tracing: { zipkin: x }\n`,
        problems: ['4:12: tracing.zipkin: unknown key "zipkin": expected otlp_endpoint or ratio'],
      },
      {
        rule: 'in a list, at its place',
        text: 'upstreams:\n  - name: a\n    ads:\n      endpoint: ["x:1"]\n',
        problems: [
          '3:5: upstreams[0].ads.endpoints: missing: a list is required',
          '4:7: upstreams[0].ads.endpoint: unknown key "endpoint": did you mean "endpoints"?',
        ],
      },
      {
        rule: 'each of several',
        text: `${minimal}foo: 1\n"b.r": 2\n__proto__: 3\nconstructor: 4\n`,
        problems: [
          '4:1: foo: unknown key "foo": expected ',
          '5:1: ["b.r"]: unknown key "b.r": expected ',
          '6:1: __proto__: the key "__proto__" is not allowed',
          '7:1: constructor: unknown key "constructor": expected ',
        ],
      },
      {
        rule: 'a key twice',
        text: `${minimal}workers: 0\nnode: { id: a, id: b }\nworkers: 0\n`,
        problems: [
          '5:16: node.id: duplicate key: it is first in line 5',
          '6:1: workers: duplicate key: it is first in line 4',
        ],
      },
      {
        rule: 'a key that is no string',
        text: `${minimal}node: { metadata: { 5: a } }\n`,
        problems: ['4:21: node.metadata: a key is not a string: quote it'],
      },
    ],
  ],
  [
    'types',
    [
      {
        rule: 'a string where a number is accepted',
        text: `${minimal}cache: { max_bytes: 1GiB }\n`,
        problems: ['4:21: cache.max_bytes: expected a number, got the string "1GiB": write 1073741824'],
      },
      {
        rule: 'a fraction where a whole number is accepted',
        text: `${minimal}workers: 0.5\n`,
        problems: ['4:10: workers: expected a whole number, got the number 0.5'].toReversed(),
      },
      {
        rule: 'a number where a string is accepted',
        text: `${minimal}node: { id: 5 }\n`,
        problems: ['4:13: node.id: expected a string, got the number 5'],
      },
      {
        rule: 'a header, which may be a secret',
        text: 'upstreams:\n  - name: a\n    ads: { endpoints: ["cp:1"], headers: { x-token: 1234567 } }\n',
        problems: ['3:53: upstreams[0].ads.headers.x-token: expected a string, got a number'],
      },
      {
        rule: 'headers that are no mapping',
        text: 'upstreams:\n  - name: a\n    ads: { endpoints: ["cp:1"], headers: "x-token: secret" }\n',
        problems: ['3:42: upstreams[0].ads.headers: expected a mapping, got a string'],
      },
      {
        rule: 'a number in quotes',
        text: `${minimal}workers: "2"\n`,
        problems: ['4:10: workers: expected a number, got the string "2": write 2, without quotes'],
      },
      {
        rule: 'a type by the name of its message',
        text: `${minimal}xds: { legacy_wildcard: [cluster, RouteConfigurations, endpoints] }\n`,
        problems: [
          '4:26: xds.legacy_wildcard[0]: unknown type "cluster": did you mean "cds"?',
          '4:35: xds.legacy_wildcard[1]: unknown type "RouteConfigurations": did you mean "rds"?',
          '4:56: xds.legacy_wildcard[2]: unknown type "endpoints": did you mean "eds"?',
        ],
      },
      {
        rule: 'a URL where an address is accepted',
        text: 'upstreams:\n  - name: a\n    ads: { endpoints: ["https://cp.test", "http://cp:1/", "cp"] }\n',
        problems: [
          '3:24: upstreams[0].ads.endpoints[0]: address "https://cp.test" must be HOST:PORT, [IPV6]:PORT or unix:PATH, with a port up to 65535: this is a URL: write "cp.test:443" and set tls',
          '3:43: upstreams[0].ads.endpoints[1]: address "http://cp:1/" must be HOST:PORT, [IPV6]:PORT or unix:PATH, with a port up to 65535: this is a URL: write "cp:1"',
          '3:59: upstreams[0].ads.endpoints[2]: address "cp" must be HOST:PORT, [IPV6]:PORT or unix:PATH, with a port up to 65535: the port is missing',
        ],
      },
      {
        rule: 'other units of time',
        text: `${minimal}drain_timeout: 10min\n`,
        problems: [
          '4:16: drain_timeout: "10min" is not a duration: did you mean "10m"? (units: ms, s, m, h)',
        ],
      },
      {
        rule: 'a string where true or false is accepted',
        text: `${minimal}parameters: [{ key: a, from: node.id, trusted: "yes" }]\n`,
        problems: ['4:48: parameters[0].trusted: expected true or false, got the string "yes": write true'],
      },
      {
        rule: 'a mapping where a list is accepted',
        text: 'upstreams: { name: a }\n',
        problems: ['1:1: upstreams: expected a list, got a mapping'],
      },
      {
        rule: 'a list where a mapping is accepted',
        text: `${minimal}limits:\n  - max_streams: 5\n`,
        problems: ['4:1: limits: expected a mapping, got a list'],
      },
      {
        rule: 'nothing after a key',
        text: `${minimal}parameters:\n`,
        problems: ['4:12: parameters: expected a list, got nothing (null)'],
      },
      {
        rule: 'a word outside a closed set',
        text: ads('protocol: DELTAS'),
        problems: [
          '5:17: upstreams[0].ads.protocol: expected DELTA or SOTW, got the string "DELTAS": did you mean "DELTA"?',
        ],
      },
      {
        rule: 'numbers out of range',
        text: `${minimal}limits: { max_streams: 0, max_constraint_depth: 5000 }\n`,
        problems: [
          '4:24: limits.max_streams: must be at least 1',
          '4:49: limits.max_constraint_depth: must be at most 1000',
        ],
      },
      {
        rule: 'a list that is too long',
        text: `${minimal}rollout: { checks: [${'{ name: a }, '.repeat(33)}] }\n`,
        problems: ['4:12: rollout.checks: must have at most 32 entries'],
      },
      {
        rule: 'a string that is too long',
        text: `${minimal}rollout: { checks: [{ webhook: { url: "http://a" }, name: ${'n'.repeat(101)} }] }\n`,
        problems: ['4:59: rollout.checks[0].name: must have at most 100 characters'],
      },
      ...[
        ['true', 'the boolean true'],
        ['5', 'the number 5'],
        ['off', 'the string "off": write false'],
        ['"on"', 'the string "on"'],
        ['[]', 'a list'],
      ].map(([value = '', got = '']) => ({
        rule: `${value} where a mapping or false is accepted`,
        text: `${minimal}history: ${value}\n`,
        problems: [`4:${value === '[]' ? 1 : 10}: history: expected false or a mapping, got ${got}`],
      })),
      {
        rule: 'a wrong entry of a mapping instead of which false is accepted',
        text: `${minimal}history: { max_bytes: many, age: 5s }\n`,
        problems: [
          '4:23: history.max_bytes: expected a number, got the string "many"',
          '4:29: history.age: unknown key "age": expected max_bytes or max_age',
        ],
      },
      {
        rule: 'an empty string or list',
        text: 'upstreams: [{ name: "", ads: { endpoints: [] } }]\n',
        problems: [
          '1:21: upstreams[0].name: must not be empty',
          '1:32: upstreams[0].ads.endpoints: must have at least one entry',
        ],
      },
      {
        rule: 'a number that JSON does not have',
        text: `${minimal}node: { metadata: { a: .inf } }\n`,
        problems: ['4:24: node.metadata.a: Infinity is not a JSON number'],
      },
      {
        rule: 'a type of resource',
        text: `${minimal}xds: { legacy_wildcard: [cd] }\n`,
        problems: ['4:26: xds.legacy_wildcard[0]: unknown type "cd": did you mean "cds"?'],
      },
    ],
  ],
  [
    'durations',
    ['5', '"5"', '-1s', '5 s', '5d', '1.s', '""'].map((duration) => ({
      rule: `${duration} is none`,
      text: `${minimal}drain_timeout: ${duration}\n`,
      problems: [
        duration === '5'
          ? '4:16: drain_timeout: 5 is not a duration, because it has no unit: write "5s" (units: ms, s, m, h)'
          : '4:16: drain_timeout: "',
      ],
    })),
  ],
  [
    'durations in bounds',
    [
      {
        rule: 'too long, too short, zero where that makes no sense',
        text: ads('connect_timeout: 0s\n      resource_timeout: 600h\n      keepalive: { time: 0.1ms }'),
        problems: [
          '5:24: upstreams[0].ads.connect_timeout: must be longer than 0',
          '6:25: upstreams[0].ads.resource_timeout: 600h is too long',
          '7:26: upstreams[0].ads.keepalive.time: 0.1ms is too short',
        ],
      },
      {
        rule: 'zero where that makes no sense, as a number',
        text: ads('connect_timeout: 0'),
        problems: ['5:24: upstreams[0].ads.connect_timeout: must be longer than 0'],
      },
      {
        rule: 'a longest wait below the first',
        text: ads('backoff: { initial: 5s, max: 500ms }'),
        problems: ['5:36: upstreams[0].ads.backoff.max: must not be shorter than initial'],
      },
    ],
  ],
  [
    'addresses',
    [
      ...[
        'cp',
        'cp:',
        ':18000',
        'cp:70000',
        '::1:80',
        '[cp]:80',
        '1.2.3:80',
        '300.0.0.1:80',
        'a b:80',
        '-x:80',
        'unix:',
        'http://cp:80',
        'cp:0',
        `unix:/${'x'.repeat(120)}`,
      ].map((address) => ({
        rule: `"${address.slice(0, 20)}" is no endpoint`,
        text: `upstreams:\n  - name: a\n    ads: { endpoints: ["cp:1", "${address}"] }\n`,
        problems: ['3:32: upstreams[0].ads.endpoints[1]: '],
      })),
      ...['relay:19000', 'http://relay', 'a b', '[relay]', '1.2.3', ''].map((host) => ({
        rule: `"${host}" is no host that the admin listener may be named by`,
        text: `${minimal}admin: { hosts: ["relay", "*.relay.svc", "::1", "[::1]", "10.0.0.1", "${host}"] }\n`,
        problems: [`4:70: admin.hosts[5]: "${host}" is not a host: use a name without a port`],
      })),
      {
        rule: 'a Unix socket is no admin address',
        text: `${minimal}admin: { address: "unix:/a" }\n`,
        problems: ['4:19: admin.address: a Unix socket cannot be used here'],
      },
    ],
  ],
  [
    'relations',
    [
      {
        rule: 'no upstream',
        text: 'workers: 0\n',
        problems: ['1:1: upstreams: missing: a list is required'],
      },
      {
        rule: 'an empty list of upstreams',
        text: 'upstreams: []\n',
        problems: ['1:1: upstreams: must have at least one entry'],
      },
      {
        rule: 'upstream names are unique',
        text: 'upstreams:\n  - { name: a, types: [cds], filesystem: { path: x } }\n  - { name: a, filesystem: { path: y } }\n',
        problems: ['3:13: upstreams[1].name: "a" is also the name of upstreams[0]: names must be unique'],
      },
      {
        rule: 'an upstream is ads or filesystem, and not both',
        text: 'upstreams:\n  - name: a\n    types: [cds]\n  - name: b\n    ads: { endpoints: [x] }\n    filesystem: { path: y }\n',
        problems: [
          '2:5: upstreams[0]: expected either ads or filesystem: this upstream has neither',
          '4:5: upstreams[1]: expected either ads or filesystem: this upstream has both',
          '5:24: upstreams[1].ads.endpoints[0]: address "x" must be',
        ],
      },
      {
        rule: 'siblings are for control planes',
        text: 'upstreams:\n  - name: a\n    filesystem: { path: x }\n    siblings: { address: "peers:1" }\n',
        problems: ['4:5: upstreams[0].siblings: is for control planes: this upstream has no ads'],
      },
      {
        rule: 'siblings have an address that can be connected to',
        text: 'upstreams:\n  - name: a\n    ads: { endpoints: ["cp:1"] }\n    siblings: { address: "peers:0", tls: { certificate: c } }\n',
        problems: [
          '4:26: upstreams[0].siblings.address: "peers:0" has port 0: use 1 to 65535',
          '4:37: upstreams[0].siblings.tls: certificate and private_key belong together: private_key is missing',
        ],
      },
      {
        rule: 'a claimed name that is no name, or the beginning of none',
        text: 'upstreams:\n  - { name: a, filesystem: { path: x }, names: ["xdstp://a/T/b#c", "xdstp://a/T/b?c=*"] }\n',
        problems: [
          '2:49: upstreams[0].names[0]: xdstp name "xdstp://a/T/b#c": directives (#…) are not part of a name: leave them out',
          '2:68: upstreams[0].names[1]: xdstp prefix "xdstp://a/T/b?c=": it ends after the path: the order of parameters does not count, so give the path or a whole name',
        ],
      },
      {
        rule: 'a listener needs certificate and key, and an authority to verify clients',
        text: `${minimal}xds:\n  tls: { certificate: c }\nadmin:\n  tls:\n    require_client_certificate: true\n`,
        problems: [
          '5:3: xds.tls: certificate and private_key belong together: private_key is missing',
          '7:3: admin.tls: certificate and private_key belong together: certificate and private_key are missing',
          '8:33: admin.tls.require_client_certificate: needs ca',
        ],
      },
      {
        rule: 'a secret of session tickets needs TLS and session tickets, of a listener for clients',
        text: `${minimal}xds:
  tls: { certificate: c, private_key: k, session_tickets: false, session_ticket_secret_file: s }
rest:
  tls: { session_ticket_secret_file: s }
admin:
  tls: { certificate: c, private_key: k, session_tickets: true }
`,
        problems: [
          '5:94: xds.tls.session_ticket_secret_file: needs session_tickets: true',
          '7:3: rest.tls: certificate and private_key belong together: certificate and private_key are missing',
          '9:42: admin.tls.session_tickets: unknown key',
        ],
      },
      {
        rule: 'an upstream needs both of certificate and key',
        text: ads('tls: { private_key: k }'),
        problems: [
          '5:7: upstreams[0].ads.tls: certificate and private_key belong together: certificate is missing',
        ],
      },
      {
        rule: 'names of xdstp in an authorization rule that would miss other spellings',
        text: `${minimal}xds:
  authorization:
    rules:
      - allow: false
        names:
          - xdstp://a/T/x?k=1*
          - xdstp://a/T/x?*
          - xdstp://a/T/x%4*
          - xdstp://a/T/%C3*
          - xdstp:/a/T*
          - xdstp://a/T/x?k=1&k=2
          - xdstp://a/T/x#d
          - xdstp://a/T/x%2Fy*
          - xdstp://a*
          - xdstp:*
          - "*"
`,
        problems: [
          '9:13: xds.authorization.rules[0].names[0]: xdstp prefix "xdstp://a/T/x?k=1": it ends after the path',
          '10:13: xds.authorization.rules[0].names[1]: xdstp prefix "xdstp://a/T/x?": it ends after the path',
          '11:13: xds.authorization.rules[0].names[2]: xdstp prefix "xdstp://a/T/x%4": its percent-encoding is not valid UTF-8',
          '12:13: xds.authorization.rules[0].names[3]: xdstp prefix "xdstp://a/T/%C3": its percent-encoding is not valid UTF-8',
          '13:13: xds.authorization.rules[0].names[4]: xdstp prefix "xdstp:/a/T": no name begins like this',
          '14:13: xds.authorization.rules[0].names[5]: xdstp name "xdstp://a/T/x?k=1&k=2": the context parameter "k" is given twice',
          '15:13: xds.authorization.rules[0].names[6]: xdstp name "xdstp://a/T/x#d": directives (#…) are not part of a name',
        ],
      },
      {
        rule: 'an authorization rule with an empty list, or without allow',
        text: `${minimal}xds:\n  authorization:\n    rules:\n      - { types: [], allow: true }\n      - { principals: [me] }\n`,
        problems: [
          '7:11: xds.authorization.rules[0].types: must have at least one entry',
          '8:9: xds.authorization.rules[1].allow: missing: true or false is required',
          '8:24: xds.authorization.rules[1].principals[0]: "me" is not a principal',
        ],
      },
      {
        rule: 'an authority is only the part between slashes',
        text: 'upstreams: [{ name: a, authorities: ["xdstp://x"], filesystem: { path: x } }]\n',
        problems: ['1:38: upstreams[0].authorities[0]: "xdstp://x" is not an authority'],
      },
    ],
  ],
  [
    'parameter rules',
    [
      {
        rule: 'trusted and other rules for one key',
        text: `${minimal}parameters:
  - { key: tenant, from: peer.uri_san, trusted: true }
  - { key: env, from: node.metadata.env }
  - { key: tenant, from: node.metadata.tenant, authorities: [a] }
  - { key: tenant, from: node.id, trusted: false }
`,
        problems: [
          '7:5: parameters[2].trusted: parameters[0] (from "peer.uri_san", trusted: true) and parameters[2] (from "node.metadata.tenant", trusted: false) are both for the key "tenant": all rules of a key need the same "trusted"',
          '8:44: parameters[3].trusted: parameters[0] (from "peer.uri_san", trusted: true) and parameters[3] (from "node.id", trusted: false) are both for the key "tenant"',
        ],
      },
      {
        rule: 'a pattern that RE2 does not have',
        text: `${minimal}parameters: [{ key: a, from: node.id, pattern: "(?=x)" }]\n`,
        problems: ['4:48: parameters[0].pattern: not an RE2 pattern: '],
      },
      {
        rule: 'more rules than are accepted: nothing else is said of them together',
        text: `${minimal}parameters: [${'{ key: a, from: node.id, pattern: "(?=x)" }, '.repeat(1001)}]\n`,
        problems: ['4:1: parameters: must have at most 1000 entries'],
      },
      {
        rule: 'patterns that take long: those before are judged',
        text: `${minimal}parameters:
  - { key: a, from: node.id, pattern: "(?=x)" }
  - { key: b, from: node.id, pattern: '(?i)${'ü'.repeat(20)}' }
  - { key: c, from: node.id, pattern: '(x{100}){100}' }
  - { key: d, from: node.id, pattern: "(?=x)" }
`,
        problems: [
          '5:39: parameters[0].pattern: not an RE2 pattern: ',
          '7:39: parameters[2].pattern: with this pattern, those of all rules come to more than 50000 characters with their repetitions written out',
        ],
      },
      {
        rule: 'a path longer than any node has',
        text: `${minimal}parameters: [{ key: a, from: node.metadata${'.a'.repeat(600)} }]\n`,
        problems: ['4:30: parameters[0].from: is longer than 1024 characters'],
      },
      ...['node.name', 'node.metadata', 'node.metadata.', 'node.metadata.a..b', 'peer.san', ''].map(
        (from) => ({
          rule: `from "${from}"`,
          text: `${minimal}parameters:\n  - key: a\n    from: "${from}"\n`,
          problems: [`6:11: parameters[0].from: expected node.metadata.KEY`],
        }),
      ),
      {
        rule: 'a mode that is none',
        text: `${minimal}xds: { address: "unix:/run/x", unix_mode: "777" }\n`,
        problems: ['4:43: xds.unix_mode: "777" is not a mode: use four octal digits, as in "0666"'],
      },
      {
        rule: 'a mode of a TCP address',
        text: `${minimal}xds: { unix_mode: "0666" }\n`,
        problems: ['4:19: xds.unix_mode: only an address unix:PATH has a mode'],
      },
      {
        rule: 'a client has several features: which one?',
        text: `${minimal}parameters:\n  - key: a\n    from: node.client_features\n`,
        problems: [
          '6:11: parameters[0].from: node.client_features is a list: "pattern" says which feature is meant',
        ],
      },
      {
        rule: 'what a control plane cannot be shown is no "to"',
        text: `${minimal}parameters:\n  - key: a\n    from: peer.uri_san\n    to: peer.uri_san\n`,
        problems: ['7:9: parameters[0].to: expected node.metadata.KEY'],
      },
      {
        rule: 'a template with a key that no rule has',
        text: `${minimal}parameters:\n  - { key: a, from: node.id, to: "node.id=x.$\${a}.$\${b}" }\n`,
        problems: ['5:34: parameters[0].to: ${b} is not the key of any rule: use the keys of "parameters"'],
      },
      {
        rule: 'a template of nothing',
        text: `${minimal}parameters:\n  - { key: a, from: node.id, to: "node.id=" }\n`,
        problems: ['5:34: parameters[0].to: "node.id=" has no template after "="'],
      },
      {
        rule: 'one place in two spellings',
        text: `${minimal}parameters:\n  - { key: a, from: node.id }\n  - { key: b, from: node.id, to: 'node.metadata["a"]' }\n`,
        problems: [
          '6:34: parameters[1].to: node.metadata["a"] is already written by parameters[0] (key "a")',
        ],
      },
      {
        rule: 'two keys shown in one place',
        text: `${minimal}parameters:\n  - { key: a, from: node.id }\n  - { key: b, from: node.cluster, to: node.metadata.a }\n`,
        problems: ['6:39: parameters[1].to: node.metadata.a is already written by parameters[0] (key "a")'],
      },
      {
        rule: 'one key shown inside the other',
        text: `${minimal}parameters:\n  - { key: a, from: node.id }\n  - { key: a.b, from: node.cluster }\n`,
        problems: ['6:5: parameters[1].to: node.metadata.a.b is already written by parameters[0] (key "a")'],
      },
      {
        rule: 'a default that is not among the values',
        text: `${minimal}parameters:\n  - { key: a, from: node.id, default: c, values: [a, b] }\n`,
        problems: ['5:39: parameters[0].default: "c" is not one of "values": use "a", "b"'],
      },
      {
        rule: 'a key that makes no path needs a "to"',
        text: `${minimal}parameters:\n  - { key: "a.", from: node.id }\n`,
        problems: ['5:5: parameters[0]: "node.metadata.a." is not a path'],
      },
    ],
  ],
  [
    'text',
    [
      {
        rule: 'headers that are not accepted, without their values',
        text: `upstreams:
  - name: a
    ads:
      endpoints: ["x:1"]
      headers:
        "a b": x
        grpc-timeout: 1S
        User-Agent: me
        key-bin: x
        x-key: "hush\\n"
        x-port: 1
`,
        problems: [
          '6:16: upstreams[0].ads.headers["a b"]: "a b" is not a header: use letters',
          '7:23: upstreams[0].ads.headers.grpc-timeout: the header "grpc-timeout" is set by gRPC or by the relay',
          '8:21: upstreams[0].ads.headers.User-Agent: the header "user-agent" is set by gRPC or by the relay',
          '9:18: upstreams[0].ads.headers.key-bin: "key-bin" is not a header',
          '10:16: upstreams[0].ads.headers.x-key: the value of a header must be visible ASCII, without spaces',
          '11:17: upstreams[0].ads.headers.x-port: expected a string, got a number',
        ],
      },
      {
        rule: 'two tokens',
        text: 'upstreams:\n  - name: a\n    ads: { endpoints: ["x:1"], token_file: t, headers: { Authorization: x } }\n',
        problems: ['3:47: upstreams[0].ads.headers: token_file sets "authorization"'],
      },
      { rule: 'an empty file', text: '# nothing\n', problems: ['1:1: the file is empty'] },
      { rule: 'a file that is a list', text: '- a\n', problems: ['1:1: expected a mapping, got a list'] },
      { rule: 'broken YAML', text: 'a: 1\nb: [1, 2\n', problems: ['3:1: not valid YAML: '] },
      {
        rule: 'one YAML error is one problem, whatever the parser makes of the rest',
        text: `xds: { address: "127.0.0.1:0" }\n\tnode: { id: a }\n${'\tb: [\n  - : }\n'.repeat(15)}`,
        problems: ['2:1: not valid YAML: '],
      },
      {
        rule: 'two documents',
        text: `${minimal}---\na: 1\n`,
        problems: ['4:1: the file has more than one document'],
      },
      {
        rule: 'a tag nobody knows',
        text: 'a: !secret x\n',
        problems: ['1:4: not valid YAML: Unresolved tag'],
      },
      {
        rule: 'a reference without quotes inside braces',
        text: 'node: { id: ${ID} }\n',
        problems: ['1:14: not valid YAML: Unexpected'],
      },
      {
        rule: 'an alias of nothing',
        text: `${minimal}node: { id: *nobody }\n`,
        problems: ['4:13: node.id: *nobody is an alias without an anchor: there is no &nobody above it'],
      },
      {
        rule: 'an alias inside its own anchor',
        text: `${minimal}node: { metadata: &m { a: *m } }\n`,
        problems: ['4:24: node.metadata.a: is nested deeper than 64 levels'],
      },
      {
        rule: 'so many levels that the parser overflows',
        text: `a:\n  ${'em: '.repeat(3000)}x\nb: 1\n`,
        problems: ['1:1: is nested deeper than 64 levels'],
      },
    ],
  ],
  [
    'rollout',
    [
      {
        rule: 'percent 0',
        text: `${minimal}rollout: { canary: { percent: 0 } }\n`,
        problems: ['4:31: rollout.canary.percent: must be at least 0.01'],
      },
      {
        rule: 'percent 101',
        text: `${minimal}rollout: { canary: { percent: 101 } }\n`,
        problems: ['4:31: rollout.canary.percent: must be at most 100'],
      },
      {
        rule: 'canary beside waves',
        text: `${minimal}rollout: { canary: {}, waves: [{ percent: 5 }] }\n`,
        problems: ['4:12: rollout.canary: rollout.canary is a single wave: expected either canary or waves'],
      },
      {
        rule: 'an empty wave, and one that does not grow',
        text: `${minimal}rollout: { waves: [{}, { percent: 5 }, { percent: 5 }] }\n`,
        problems: [
          '4:20: rollout.waves[0]: an empty wave: expected percent, match, or both',
          '4:51: rollout.waves[2].percent: a wave adds clients to those before: expected more than 5',
        ],
      },
      {
        rule: 'canary_principals where no client is verified',
        text: `${minimal}rollout: { canary_principals: ["spiffe://a/*"] }\n`,
        problems: ['4:12: rollout.canary_principals: without xds.tls.ca no client is verified'],
      },
      {
        rule: 'canary_principals where no client is verified, in a section with another problem',
        text: `${minimal}rollout: { canary_principals: ["spiffe://a/*"], bake: soon }\n`,
        problems: [
          '4:12: rollout.canary_principals: without xds.tls.ca no client is verified',
          '4:55: rollout.bake: ',
        ],
      },
      {
        rule: 'no waves',
        text: `${minimal}rollout: { waves: [] }\n`,
        problems: ['4:12: rollout.waves: must have at least one entry'],
      },
      {
        rule: 'a match of a wave on a key that no rule derives',
        text: `${minimal}parameters: [{ key: env, from: node.metadata.env }]\nrollout: { waves: [{ percent: 5 }, { match: [{ key: evn, value: a }] }] }\n`,
        problems: [
          '5:53: rollout.waves[1].match[0].key: "evn" is not the key of any rule in "parameters", so no client would match: expected env',
        ],
      },
      {
        rule: 'a match on a key that no rule derives',
        text: `${minimal}parameters: [{ key: env, from: node.metadata.env }]\nrollout: { canary: { match: [{ key: evn, value: a }] } }\n`,
        problems: [
          '5:37: rollout.canary.match[0].key: "evn" is not the key of any rule in "parameters", so no client would match: expected env',
        ],
      },
      {
        rule: 'a match without any rules',
        text: `${minimal}rollout: { canary: { match: [{ key: env, value: a }] } }\n`,
        problems: [
          '4:37: rollout.canary.match[0].key: "env" is not the key of any rule in "parameters", so no client would match: "parameters" has no rules',
        ],
      },
      {
        rule: 'a match on a key that is derived only for names of an authority',
        text: `${minimal}parameters: [{ key: env, from: node.id, authorities: [a] }, { key: zone, from: node.id, to: node.metadata.z }]\nrollout: { waves: [{ match: [{ key: env, value: a }] }] }\n`,
        problems: [
          '5:37: rollout.waves[0].match[0].key: the rules for "env" are for names of single authorities, and canaries are chosen by what holds for every name: expected zone',
        ],
      },
      {
        rule: 'a match on a value that is derived only for names of an authority',
        text: `${minimal}parameters: [{ key: env, from: node.id, authorities: [a] }, { key: env, from: node.id, values: [prod] }]\nrollout: { waves: [{ match: [{ key: env, value: test }] }] }\n`,
        problems: [
          '5:49: rollout.waves[0].match[0].value: "test" is not one of the values of the rules for "env", so no client would match: expected prod',
        ],
      },
      {
        rule: 'a match on a value that the rules never derive',
        text: `${minimal}parameters: [{ key: env, from: node.metadata.env, values: [prod, test] }]\nrollout: { canary: { match: [{ key: env, value: canary }] } }\n`,
        problems: [
          '5:49: rollout.canary.match[0].value: "canary" is not one of the values of the rules for "env", so no client would match: expected prod or test',
        ],
      },
      {
        rule: 'an unknown type',
        text: `${minimal}rollout: { types: [lds, cdx] }\n`,
        problems: ['4:25: rollout.types[1]: unknown type "cdx": did you mean "cds"?'],
      },
      {
        rule: 'no type',
        text: `${minimal}rollout: { types: [] }\n`,
        problems: ['4:12: rollout.types: must have at least one entry'],
      },
      {
        rule: 'another mode, and another end of the wait',
        text: `${minimal}rollout: { mode: manual, on_timeout: ABORT }\n`,
        problems: [
          '4:18: rollout.mode: expected AUTOMATIC or MANUAL, got the string "manual": did you mean "MANUAL"?',
          '4:38: rollout.on_timeout: expected HOLD or PROCEED, got the string "ABORT"',
        ],
      },
      {
        rule: 'history without bytes or age',
        text: `${minimal}history: { max_bytes: 0, max_age: 0s }\n`,
        problems: [
          '4:23: history.max_bytes: must be at least 1',
          '4:35: history.max_age: must be longer than 0',
        ],
      },
    ],
  ],
]);

for (const [topic, rows] of tables) {
  describe(`configuration problems: ${topic}`, () => {
    for (const { rule, text, problems } of rows) it(rule, () => expectProblems(problemsOf(text), problems));
  });
}

describe('configuration problems', () => {
  it('every error is reported at once, in the order of the file', () => {
    const text = `node: { idd: x }
xds: { address: nowhere, tls: { ca: f } }
upstreams:
  - name: a
    ads: { endpoints: ["cp"], protocol: REST }
  - name: a
cache: { max_bytes: -1 }
drain_timeout: soon
rest: {}
`;
    expect(problemsOf(text).map((problem) => problem.split(': ').slice(0, 2).join(' '))).to.deep.equal([
      '1:9 node.idd',
      '2:17 xds.address',
      '2:26 xds.tls',
      '5:24 upstreams[0].ads.endpoints[0]',
      '5:41 upstreams[0].ads.protocol',
      '6:5 upstreams[1]',
      '6:11 upstreams[1].name',
      '7:21 cache.max_bytes',
      '8:16 drain_timeout',
    ]);
  });

  it('aliases that unfold without end are refused soon', () => {
    const levels = Array.from({ length: 12 }, (_, level) => {
      const above = level === 0 ? 'x' : `*a${level - 1}`;
      return `    a${level}: &a${level} [${Array.from({ length: 9 }, () => above).join(', ')}]`;
    });
    const [first] = problemsOf(`${minimal}node:\n  metadata:\n${levels.join('\n')}\n`);
    expect(first).to.match(/has more than 100000 entries/);
  });

  it('the cost of aliases grows with their number, not with its square', () => {
    // The library asks each plain scalar that it passes for its anchor.
    const looksAt = (aliases: number): number => {
      let looks = 0;
      Object.defineProperty(Scalar.prototype, 'anchor', {
        configurable: true,
        get: () => void looks++,
        set(this: Scalar, value: string) {
          Object.defineProperty(this, 'anchor', { value });
        },
      });
      problemsOf(`[&a 1${', 1, *a'.repeat(aliases)}]`);
      Reflect.deleteProperty(Scalar.prototype, 'anchor');
      return looks;
    };
    const few = looksAt(100);
    expect(few).to.be.at.least(100);
    expect(looksAt(1000)).to.be.below(11 * few);
  });

  const repeated: readonly (readonly [string, string])[] = [
    ['an alias inside its own anchor', `&m [*m${', 1'.repeat(5000)}]`],
    ['an alias that only goes deeper', `&m [${'*m, '.repeat(5000)}]`],
    ['keys that are no strings', `[&m {${'1: 1, '.repeat(5000)}}${', *m'.repeat(1000)}]`],
    ['duplicate keys', `[&m {${'a: 1, '.repeat(5000)}}${', *m'.repeat(1000)}]`],
    ['references that fail', `[&m "${'${A}'.repeat(5000)}"${', *m'.repeat(1000)}]`],
  ];
  for (const [what, text] of repeated) {
    it(`reading ends at a bound: ${what}`, () => {
      const { places, problems } = parseText(text, {});
      expect(places.size).to.be.at.most(100_000);
      expect(problems.length).to.be.within(1, 100_001);
      expect(problems.filter(({ message }) => /has more than|deeper than/.test(message))).to.have.length(1);
    });
  }

  const [costly = expect.fail(), ...costlyToo] = costlyConfigurations;
  for (const [what, text] of cases(costly, ...costlyToo)) {
    it(`the checks of a configuration take time by its length, not by its square: ${what}`, () => {
      const before = cpuSeconds();
      problemsOf(text);
      expect(cpuSeconds() - before).to.be.below(4);
    });
  }

  it('a header whose value is "authorization" may stand beside a token', () => {
    const text =
      'upstreams: [{ name: a, ads: { endpoints: ["x:1"], token_file: t, headers: { x: authorization } } }]\n';
    expect(problemsOf(text)).to.deep.equal([]);
  });

  it('rules for different authorities may show their parameters in one place', () => {
    const rules = ['a', 'b'].map(
      (key) => `  - { key: ${key}, from: node.id, to: node.id, authorities: [${key}] }\n`,
    );
    expect(problemsOf(`${minimal}parameters:\n${rules.join('')}`)).to.deep.equal([]);
  });
});
