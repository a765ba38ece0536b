import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { fail, ok, type Result } from '../model/result.ts';
import { printable } from '../model/text.ts';
import { parseAddress } from '../wire/address.ts';
import { explainError } from '../wire/node-error.ts';
import { defineCommand, file, required, text, toggle, UsageError, type ValuesOf } from './command.ts';
import { flagNames, wholePair } from './context.ts';
import { readPemFiles } from './relay-command.ts';

/** Longer than a name server or a handshake takes, in milliseconds. */
const patienceMs = 5000;
/** With TLS 1.3 a server looks at the client certificate after the client's handshake: so long a refusal may take. */
const secondThoughtsMs = 1000;

const flags = {
  endpoint: required(text('HOST:PORT', 'what to connect to')),
  tls: toggle('with TLS; each of the following means that, too'),
  'server-name': text('N', 'the name to ask for (SNI) and to verify; default: the host'),
  ca: file('F', 'PEM file of the authorities to trust; default: those that come with Node'),
  cert: file('F', 'PEM file of a client certificate, if the other end asks for one'),
  key: file('F', 'PEM file of its key'),
};

export const reach = defineCommand({
  name: 'reach',
  does: 'connects to a control plane or a listener, and shows its certificate',
  about:
    'Connects from where it runs, as a relay there would, and ends the connection again. No relay is asked. With TLS it shows the certificate of the other end, and whether it is trusted.',
  flags,
  exit: '0; 1 if there is no connection, or the certificate of either end is refused.',
  run: async (given, { terminal: { out, err } }) => {
    const endpoint = parseAddress(given.endpoint);
    if (!endpoint.ok || endpoint.value.kind !== 'tcp')
      return new UsageError(`--endpoint ${given.endpoint}: expected HOST:PORT`);
    const pair = wholePair({ ...given, names: flagNames });
    if (!pair.ok) return new UsageError(pair.error);
    const { host, port } = endpoint.value;
    const result = isTls(given) ? await reachTls(host, port, given, out) : await reachTcp(host, port);
    const said = printable(`${given.endpoint}: ${result.ok ? result.value : result.error}`);
    (result.ok ? out : err)(`${said}\n`);
    return result.ok ? 0 : 1;
  },
});

type Given = ValuesOf<typeof flags>;

const isTls = (given: Given): boolean =>
  given.tls || [given['server-name'], given.ca, given.cert, given.key].some((one) => one !== '');

/** With TLS 1.3 the other end often does not say what it lacks. */
const hint = '; if it requires a client certificate, give --cert and --key';

async function reachTcp(host: string, port: number): Promise<Result<string>> {
  const socket = connectTcp(port, host);
  const connected = await outcome(socket, 'connect', patienceMs);
  socket.destroy();
  return connected === undefined ? ok('accepts connections') : fail(connected);
}

async function reachTls(
  host: string,
  port: number,
  given: Given,
  out: (text: string) => void,
): Promise<Result<string>> {
  const name = given['server-name'] === '' ? host : given['server-name'];
  const files = readPemFiles({ ...given, names: flagNames });
  if (!files.ok) return files;
  let socket: TLSSocket;
  try {
    socket = connectTls({
      host,
      port,
      ...files.value,
      ALPNProtocols: ['h2'],
      servername: isIP(name) === 0 ? name : '',
      // Whatever it is, it is shown.
      rejectUnauthorized: false,
    });
  } catch (error) {
    return fail(explainError(error));
  }
  try {
    const failed = await outcome(socket, 'secureConnect', patienceMs);
    if (failed !== undefined) return fail(failed);
    out(certificateText(socket.getPeerCertificate()));
    // A string, whatever its type is declared to be.
    const code: unknown = socket.authorizationError;
    if (!socket.authorized) return fail(`the certificate is not trusted: ${explainError({ code })}`);
    const refused = await outcome(socket.resume(), 'timeout', secondThoughtsMs);
    if (refused !== undefined)
      return fail(`the connection ends after the TLS handshake: ${refused}${given.cert === '' ? hint : ''}`);
    const version = socket.getProtocol() ?? 'TLS';
    const speaks = socket.alpnProtocol === 'h2' ? 'and HTTP/2' : 'but without HTTP/2 (ALPN h2)';
    return ok(`accepts connections with ${version} ${speaks}; its certificate is trusted`);
  } finally {
    socket.destroy();
  }
}

/** Undefined: the event came; else why it did not. */
function outcome(socket: Socket, event: string, milliseconds: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    socket.once(event, () => resolve(undefined));
    socket.once('error', (error) => resolve(explainError(error)));
    socket.once('close', () => resolve('the other end closed the connection'));
    socket.setTimeout(milliseconds, () => resolve(`no answer within ${milliseconds / 1000} s`));
  });
}

function certificateText(certificate: PeerCertificate): string {
  const { subject, issuer, subjectaltname, valid_from: from, valid_to: to } = certificate;
  const name = (of: PeerCertificate['subject'] | undefined): string =>
    Object.entries(of ?? {})
      .map(([key, value]) => `${key}=${String(value)}`)
      .join(', ');
  const lines = [
    `subject: ${name(subject)}`,
    `issuer:  ${name(issuer)}`,
    `names:   ${subjectaltname ?? ''}`,
    `valid:   ${from} to ${to}`,
  ];
  return `${lines.map(printable).join('\n')}\n`;
}
