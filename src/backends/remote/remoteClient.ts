/**
 * The few things that a shared tier asks of a server, over Valkey GLIDE (docs/adr/0014), an optional peer. Every
 * failure is a `RemoteFault` with its kind; what the server holds is the caller's to judge.
 *
 * - Each call ends by its time-out, also where the server has fallen silent.
 * - Values are copied into the client before `set` returns; what `first` gives is the caller's.
 * - No value is fetched further than the caller has use for: its length is for those to choose who may write there.
 */

import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { GlideClient, GlideClusterClient } from '@valkey/valkey-glide';
import { configError, TierKVError } from '../../runtime/errors.ts';
import type { RemoteUrl, ServerAddress } from './remoteUrl.ts';

/**
 *   unreachable   no connection, or it broke
 *   silent        no answer in time
 *   full          the server takes no more: out of memory, not allowed to evict, its disk is full
 *   readOnly      a replica, such as a primary of before a failover: connect anew
 *   denied        wrong user or password, or a right is missing
 *   foreign       what answers does not speak as a Redis or Valkey of this kind does
 */
type RemoteFaultKind = 'unreachable' | 'silent' | 'full' | 'readOnly' | 'denied' | 'foreign';

export class RemoteFault extends Error {
  override readonly name: string = 'RemoteFault';
  readonly kind: RemoteFaultKind;

  constructor(kind: RemoteFaultKind, message: string) {
    super(message);
    this.kind = kind;
  }

  /** Whether it is the answer of a server that takes no writes: it is full, or we may not. */
  get isRefusal(): boolean {
    return this.kind === 'full' || this.kind === 'denied';
  }
}

export interface RemoteClient {
  /** The first `bytes` of each value, empty where the server has no value: one pipelined request. */
  heads(names: readonly string[], bytes: number): Promise<Uint8Array[]>;
  /** The first `bytes` of a value, all of one that is shorter; empty where the server has no value. */
  first(name: string, bytes: number): Promise<Uint8Array>;
  /** @returns whether the value is there now by this call: false where one was there */
  setNew(name: string, value: Buffer, expiryMs: number): Promise<boolean>;
  /** In place of what was there. */
  replace(name: string, value: Buffer, expiryMs: number): Promise<void>;
  remove(name: string): Promise<void>;
  /** Bytes that the server may hold: its `maxmemory`, or where it has none all of its machine. Of a cluster, the sum. */
  memoryBytes(): Promise<number>;
  close(): void;
}

interface ConnectOptions {
  readonly url: RemoteUrl;
  /** Certificate authorities in PEM, where the server's is not publicly known. */
  readonly ca?: string | undefined;
  /** Milliseconds for a connection to be made, and for each call. */
  readonly connectMs: number;
  readonly callMs: number;
}

type Glide = typeof import('@valkey/valkey-glide');

async function loadGlide(): Promise<Glide> {
  try {
    return await import('@valkey/valkey-glide');
  } catch (error) {
    throw new TierKVError(
      'TKV_CONFIG',
      'remote needs the package @valkey/valkey-glide, which is not installed or does not run on this platform. ' +
        'Install it: npm install @valkey/valkey-glide',
      { field: 'remote', cause: error },
    );
  }
}

/** @throws {RemoteFault} where the server does not let us in, TKV_CONFIG without the client package */
export async function connectRemote(options: ConnectOptions): Promise<RemoteClient> {
  const { url, ca, connectMs, callMs } = options;
  const glide = await loadGlide();
  glide.Logger.init('off');
  const settings = {
    addresses: (url.kind === 'sentinel' ? [await primaryOf(options)] : url.addresses).map((each) => ({
      ...each,
    })),
    useTLS: url.tls,
    requestTimeout: callMs,
    clientName: 'tierkv',
    connectionBackoff: { numberOfRetries: 1, factor: 100, exponentBase: 2 },
    ...(url.password === undefined
      ? {}
      : {
          credentials: {
            password: url.password,
            ...(url.username === undefined ? {} : { username: url.username }),
          },
        }),
    advancedConfiguration: {
      connectionTimeout: connectMs,
      ...(ca === undefined ? {} : { tlsAdvancedConfiguration: { rootCertificates: ca } }),
    },
  };
  try {
    if (url.kind === 'cluster') {
      const client = await glide.GlideClusterClient.createClient(settings);
      const info = (): Promise<unknown> =>
        client.customCommand(['INFO', 'memory'], { route: 'allPrimaries' });
      return new GlideRemote(client, glide, info, (names, bytes) => {
        const batch = new glide.ClusterBatch(false);
        for (const name of names) batch.customCommand(['GETRANGE', name, '0', String(bytes - 1)]);
        return client.exec(batch, false, { decoder: glide.Decoder.Bytes });
      });
    }
    const client = await glide.GlideClient.createClient({ ...settings, databaseId: url.database });
    const info = (): Promise<unknown> => client.customCommand(['INFO', 'memory']);
    return new GlideRemote(client, glide, info, (names, bytes) => {
      const batch = new glide.Batch(false);
      for (const name of names) batch.customCommand(['GETRANGE', name, '0', String(bytes - 1)]);
      return client.exec(batch, false, { decoder: glide.Decoder.Bytes });
    });
  } catch (error) {
    throw faultOf(error);
  }
}

class GlideRemote implements RemoteClient {
  readonly #client: GlideClient | GlideClusterClient;
  readonly #glide: Glide;
  readonly #info: () => Promise<unknown>;
  readonly #ranges: (names: readonly string[], bytes: number) => Promise<unknown>;
  #underWay = 0;
  #isClosing = false;

  constructor(
    client: GlideClient | GlideClusterClient,
    glide: Glide,
    info: () => Promise<unknown>,
    ranges: (names: readonly string[], bytes: number) => Promise<unknown>,
  ) {
    this.#client = client;
    this.#glide = glide;
    this.#info = info;
    this.#ranges = ranges;
  }

  async heads(names: readonly string[], bytes: number): Promise<Uint8Array[]> {
    const found = await this.#call(() => this.#ranges(names, bytes));
    if (!Array.isArray(found) || found.length !== names.length) {
      throw new RemoteFault('foreign', `the server gave ${describeValue(found)} for ${names.length} lookups`);
    }
    return found.map((head) => {
      if (head instanceof Uint8Array) return head;
      if (head === null) return new Uint8Array(0);
      const fault = faultOf(head);
      if (isOfAnotherType(fault)) return notOurs;
      throw fault;
    });
  }

  async first(name: string, bytes: number): Promise<Uint8Array> {
    const value = await this.#call(() =>
      this.#client
        .getrange(name, 0, bytes - 1, { decoder: this.#glide.Decoder.Bytes })
        .catch((error: unknown) => {
          if (isOfAnotherType(faultOf(error))) return notOurs;
          throw error;
        }),
    );
    if (value === null) return new Uint8Array(0);
    if (value instanceof Uint8Array) return value;
    throw new RemoteFault('foreign', `the server gave ${describeValue(value)} for a value`);
  }

  async setNew(name: string, value: Buffer, expiryMs: number): Promise<boolean> {
    const answer = await this.#call(() =>
      this.#client.set(name, value, {
        conditionalSet: 'onlyIfDoesNotExist',
        expiry: { type: this.#glide.TimeUnit.Milliseconds, count: expiryMs },
      }),
    );
    return answer !== null;
  }

  async replace(name: string, value: Buffer, expiryMs: number): Promise<void> {
    await this.#call(() =>
      this.#client.set(name, value, { expiry: { type: this.#glide.TimeUnit.Milliseconds, count: expiryMs } }),
    );
  }

  async remove(name: string): Promise<void> {
    await this.#call(() => this.#client.unlink([name]));
  }

  async memoryBytes(): Promise<number> {
    const text = textOf(await this.#call(this.#info));
    const sum = (field: string): number =>
      [...text.matchAll(new RegExp(`^${field}:(\\d+)`, 'gm'))].reduce(
        (all, [, bytes]) => all + Number(bytes),
        0,
      );
    return sum('maxmemory') || sum('total_system_memory');
  }

  /** Closed once what is under way has ended, each call by its time-out: the client warns of anything else. */
  close(): void {
    this.#isClosing = true;
    if (this.#underWay === 0) this.#client.close();
  }

  async #call<Answer>(make: () => Promise<Answer>): Promise<Answer> {
    if (this.#isClosing) throw new RemoteFault('unreachable', 'the connection is closed');
    this.#underWay++;
    try {
      return await make();
    } catch (error) {
      throw faultOf(error);
    } finally {
      if (--this.#underWay === 0 && this.#isClosing) this.#client.close();
    }
  }
}

/** Stands for a value of another type than string: a stranger's, to be replaced. */
const notOurs: Buffer = Buffer.of(0);

function isOfAnotherType({ message }: RemoteFault): boolean {
  return message.includes('WRONGTYPE');
}

/** All text in an answer of one server or several. */
function textOf(answer: unknown): string {
  if (typeof answer === 'string') return answer;
  if (typeof answer !== 'object' || answer === null) return '';
  return Object.values(answer).map(textOf).join('\n');
}

function describeValue(value: unknown): string {
  return value === null ? 'nothing' : Array.isArray(value) ? `${value.length} answers` : `a ${typeof value}`;
}

const kinds: readonly (readonly [RegExp, RemoteFaultKind])[] = [
  [
    /WRONGPASS|NOAUTH|NOPERM|PermissionDenied|no permissions|invalid username-password|authentication/i,
    'denied',
  ],
  [/READONLY/i, 'readOnly'],
  [/\bOOM\b|MISCONF|maxmemory|NOREPLICAS/i, 'full'],
  [/WRONGTYPE|unknown command|MOVED|CROSSSLOT|Multi-?plexed.*parse|parse|protocol/i, 'foreign'],
  [/timed? ?out/i, 'silent'],
];

/** An error of the client as a fault. Its text is kept, since it is the server's own. */
export function faultOf(error: unknown): RemoteFault {
  if (error instanceof RemoteFault) return error;
  const text = error instanceof Error ? error.message : String(error);
  const kind = kinds.find(([pattern]) => pattern.test(text))?.[1] ?? 'unreachable';
  return new RemoteFault(kind, text);
}

// ---- sentinels
//
// The client package does not know them. Each is asked in turn which server is the primary now; one that is down or
// does not know is passed over.

async function primaryOf(options: ConnectOptions): Promise<ServerAddress> {
  const { url } = options;
  let last = 'none was asked';
  for (const sentinel of url.addresses) {
    try {
      const found = await askSentinel(sentinel, options);
      if (found !== undefined) return found;
      last = `${sentinel.host}:${sentinel.port} knows no primary ${url.primary}`;
    } catch (error) {
      last = `${sentinel.host}:${sentinel.port}: ${error instanceof Error ? error.message : String(error)}`;
    }
  }
  throw new RemoteFault('unreachable', `no sentinel names the primary ${url.primary} (${last})`);
}

async function askSentinel(
  { host, port }: ServerAddress,
  { url, ca, connectMs }: ConnectOptions,
): Promise<ServerAddress | undefined> {
  const socket = url.tls
    ? connectTls({ host, port, ...(ca === undefined ? {} : { ca }) })
    : connectTcp(port, host);
  try {
    const late = AbortSignal.timeout(connectMs);
    await once(socket, url.tls ? 'secureConnect' : 'connect', { signal: late });
    const ask = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', url.primary];
    socket.write(`*3\r\n${ask.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`);
    let answer = '';
    for (;;) {
      const [chunk] = (await once(socket, 'data', { signal: late })) as [Buffer];
      answer += chunk.toString('latin1');
      if (/^(\*-1|\$-1|-.*)\r\n/.test(answer)) return undefined;
      const named = /^\*2\r\n\$\d+\r\n(.+)\r\n\$\d+\r\n(\d+)\r\n$/.exec(answer);
      if (named !== null) return { host: named[1], port: Number(named[2]) };
      if (answer.length > 1024) throw new Error('it does not answer as a sentinel does');
    }
  } finally {
    socket.destroy();
  }
}

/** A fault at the start as an error of the configuration, where waiting cannot mend it. */
export function configFault(fault: RemoteFault, url: RemoteUrl): TierKVError | undefined {
  if (fault.kind === 'denied') {
    return configError(
      'remote.url',
      `is not let in by ${url.shown}: ${fault.message}`,
      'Check user and password, and that the user may get, getrange, set and unlink tierkv:*.',
    );
  }
  if (fault.kind === 'foreign') {
    return configError(
      'remote.url',
      `names ${url.shown}, which does not answer as a Redis or Valkey of this kind: ${fault.message}`,
      'Check host, port, and whether it is a cluster.',
    );
  }
  return undefined;
}
