/**
 * Who may see what belongs to the operator of a server: its dashboard, its metrics, the state of its backends. Either a
 * request shows the token, or no token is asked for and the request comes from this machine. One rule for all servers:
 * the dashboard, the gateway and the example server ask it.
 *
 * A place proves nothing alone. Behind a reverse proxy on the same machine everybody has a loopback address, and often a
 * loopback Host too. So a request that a proxy passed on comes from elsewhere, and operators' pages belong on a port of
 * their own (`operatorPortOf`), which a proxy of the tenants' port does not lead to.
 *
 * A page of another site must not read them through the user's browser. So the Host of a request without a token must be a
 * name of this machine or one that was given, and an Origin must be the page's own.
 */

import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

interface OperatorAccessOptions {
  /** Asked of every client. Without one, clients on this machine are answered, and no others. */
  readonly token?: string | undefined;
  /** Names, with a port or without, by which clients may call the server, beside those of this machine. Default: none. */
  readonly hosts?: readonly string[] | undefined;
  /** Subject of a refusal's message, with its verb: `The dashboard`. */
  readonly what: string;
}

interface OperatorRefusal {
  readonly status: 401 | 403;
  readonly message: string;
}

const loopbackNames = new Set(['localhost', '127.0.0.1', '[::1]']);
const loopbackAddresses = /^(127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/;

/** The address of a client on this machine, or a name of it. */
export function isLoopback(host: string): boolean {
  return loopbackAddresses.test(host) || loopbackNames.has(host);
}

/** Headers that proxies add to what they pass on. */
const proxyHeaders =
  /^(forwarded|via|x-forwarded(-.+)?|x-original-.+|x-envoy-.+|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|cf-connecting-ip|fastly-client-ip)$/;

/**
 * Whether a request is of another machine: by its address, by a header of a proxy that passed it on, or by HTTP/1.0, in which
 * a proxy without such headers asks by default (nginx), and no browser, Prometheus or curl.
 */
export function isForeign({ socket, headers, httpVersionMajor, httpVersionMinor }: IncomingMessage): boolean {
  if (!isLoopback(socket.remoteAddress ?? '')) return true;
  if (httpVersionMajor === 1 && httpVersionMinor === 0) return true;
  return Object.keys(headers).some((name) => proxyHeaders.test(name));
}

/** The operators' port of a server unless one is named: 1000 above the tenants', or below where that would be beyond the last port; 0 for 0. */
export function operatorPortOf(port: number): number {
  if (port === 0) return 0;
  return port + 1000 <= 65_535 ? port + 1000 : port - 1000;
}

export class OperatorAccess {
  readonly #token: string | undefined;
  readonly #hosts: ReadonlySet<string>;
  readonly #what: string;

  constructor({ token, hosts = [], what }: OperatorAccessOptions) {
    this.#token = token;
    this.#hosts = new Set(hosts.map((host) => host.toLowerCase()));
    this.#what = what;
  }

  /** Whether a text is the token. Without a token none is. */
  isToken(text: string | undefined): boolean {
    if (this.#token === undefined || text === undefined) return false;
    const [a, b] = [Buffer.from(text), Buffer.from(this.#token)];
    return a.length === b.length && b.length > 0 && timingSafeEqual(a, b);
  }

  /**
   * Why a request gets no answer; undefined for one that does.
   * @param shown the token that it brings, by default in its header `Authorization: Bearer`
   */
  refusal(
    request: IncomingMessage,
    shown: string | undefined = bearerOf(request),
  ): OperatorRefusal | undefined {
    const { host = '', origin } = request.headers;
    const { 'sec-fetch-site': site, 'sec-fetch-mode': mode } = request.headers;
    const isOther = origin !== undefined && !sameOrigin(origin, host);
    if (isOther || (site === 'cross-site' && mode !== 'navigate')) {
      return this.#refuse(403, 'is not for a page of another site');
    }
    if (this.#token !== undefined) {
      if (this.isToken(shown)) return undefined;
      return this.#refuse(
        401,
        'needs its token. Open the address that the server printed, or send it as a bearer token',
      );
    }
    const name = host.toLowerCase().replace(/:\d+$/, '');
    if (!loopbackNames.has(name) && !this.#hosts.has(name) && !this.#hosts.has(host.toLowerCase())) {
      return this.#refuse(403, `is not known as ${JSON.stringify(host)}. Name that host in its option hosts`);
    }
    if (!isForeign(request)) return undefined;
    return this.#refuse(
      403,
      'answers this machine alone, and no proxy on it. Give it a token to open it to others',
    );
  }

  #refuse(status: 401 | 403, message: string): OperatorRefusal {
    return { status, message: `${this.#what} ${message}.` };
  }
}

function sameOrigin(origin: string, host: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}

/** The token of a header `Authorization: Bearer TOKEN`. */
function bearerOf({ headers: { authorization = '' } }: IncomingMessage): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
}
