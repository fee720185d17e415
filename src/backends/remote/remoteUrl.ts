/**
 * Where the shared server is, in one text:
 *
 *     redis://[user:password@]host[:6379][/database]            one server; valkey:// is the same
 *     redis+cluster://host[:port],host[:port]                   a cluster: any of its nodes
 *     redis+sentinel://host[:26379],host[:26379]/name           the primary that sentinels name
 *     rediss://  rediss+cluster://  rediss+sentinel://          the same over TLS
 *
 * User and password are percent-encoded where they hold `:`, `/`, `@` or `%`. The password is never printed.
 */

import { configError, nearestName, type TierKVError } from '../../runtime/errors.ts';

type ServerKind = 'standalone' | 'cluster' | 'sentinel';

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

export interface RemoteUrl {
  readonly kind: ServerKind;
  readonly tls: boolean;
  readonly addresses: readonly ServerAddress[];
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly database: number;
  /** For sentinels: the name of the primary that they watch. */
  readonly primary: string;
  /** Without the password, for messages. */
  readonly shown: string;
}

const FIELD = 'remote.url';
const schemes: Readonly<Record<string, { readonly kind: ServerKind; readonly tls: boolean }>> = {
  redis: { kind: 'standalone', tls: false },
  valkey: { kind: 'standalone', tls: false },
  rediss: { kind: 'standalone', tls: true },
  valkeys: { kind: 'standalone', tls: true },
  'redis+cluster': { kind: 'cluster', tls: false },
  'valkey+cluster': { kind: 'cluster', tls: false },
  'rediss+cluster': { kind: 'cluster', tls: true },
  'valkeys+cluster': { kind: 'cluster', tls: true },
  'redis+sentinel': { kind: 'sentinel', tls: false },
  'valkey+sentinel': { kind: 'sentinel', tls: false },
  'rediss+sentinel': { kind: 'sentinel', tls: true },
  'valkeys+sentinel': { kind: 'sentinel', tls: true },
};
const PORT_DEFAULT = 6379;
const SENTINEL_PORT_DEFAULT = 26_379;

/** @throws TKV_CONFIG naming `remote.url`, never with the password in it */
export function parseRemoteUrl(text: string): RemoteUrl {
  const parts = /^([a-z+]+):\/\/(?:([^@/]*)@)?([^/?#]*)(?:\/([^?#]*))?$/i.exec(text);
  if (parts === null) throw malformed('is not an address', 'Write it as redis://host:6379.');
  const [, written, credentials, hosts, path = ''] = parts;
  const name = written.toLowerCase();
  const scheme = Object.hasOwn(schemes, name) ? schemes[name] : undefined;
  if (scheme === undefined) {
    const near = nearestName(name, Object.keys(schemes));
    const remedy = near === undefined ? 'Write it as redis://host:6379.' : `Did you mean ${near}://?`;
    throw malformed(`begins with ${name}://, which is not known`, remedy);
  }
  const { kind, tls } = scheme;
  const portDefault = kind === 'sentinel' ? SENTINEL_PORT_DEFAULT : PORT_DEFAULT;
  const addresses = hosts.split(',').map((host) => addressOf(host, portDefault));
  if (kind === 'standalone' && addresses.length > 1) {
    throw malformed(
      'names several servers',
      `Write ${name}+cluster:// for a cluster, or ${name}+sentinel:// for sentinels.`,
    );
  }
  if (kind === 'sentinel' && path === '') {
    throw malformed(
      'does not say which primary the sentinels watch',
      'Add its name: redis+sentinel://host/name.',
    );
  }
  if (kind === 'cluster' && path !== '' && path !== '0') {
    throw malformed('names a database, which a cluster has not', 'Leave out what follows the hosts.');
  }
  if (kind === 'standalone' && path !== '' && !/^\d{1,5}$/.test(path)) {
    throw malformed(`names the database ${path}`, 'A database must be a number, such as /0.');
  }
  const [username, password] = credentialsOf(credentials);
  const shownUser = credentials === undefined ? '' : `${username ?? ''}:***@`;
  return {
    kind,
    tls,
    addresses,
    username,
    password,
    database: kind === 'standalone' ? Number(path) : 0,
    primary: kind === 'sentinel' ? path : '',
    shown: `${name}://${shownUser}${hosts}${path === '' ? '' : `/${path}`}`,
  };
}

function addressOf(text: string, portDefault: number): ServerAddress {
  const parts = /^(\[[0-9a-f:.]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(text);
  const port = Number(parts?.[2] ?? portDefault);
  if (parts === null || port < 1 || port > 65_535) {
    throw malformed('has a host or port that cannot be', 'Write host:port, with a port from 1 to 65535.');
  }
  return { host: parts[1].replace(/^\[|\]$/g, ''), port };
}

function credentialsOf(text: string | undefined): [string | undefined, string | undefined] {
  if (text === undefined) return [undefined, undefined];
  const colon = text.indexOf(':');
  try {
    const user = decodeURIComponent(colon === -1 ? text : text.slice(0, colon));
    const password = colon === -1 ? '' : decodeURIComponent(text.slice(colon + 1));
    if (password === '')
      throw malformed('has a user and no password', 'Write user:password@, or :password@.');
    return [user === '' ? undefined : user, password];
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    throw malformed('has a user or password with a bare %', 'Write % as %25.');
  }
}

function malformed(problem: string, remedy: string): TierKVError {
  return configError(FIELD, problem, remedy);
}
