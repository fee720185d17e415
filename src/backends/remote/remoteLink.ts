/**
 * The way to the shared server: two connections, a deadline for every call, and the breaker that leaves the server
 * out. Small requests have a connection of their own, so that a lookup never stands behind a block of megabytes.
 *
 * - Every call ends by its deadline with an answer or a `RemoteFault`, whatever the server does. What a call given
 *   up would still have brought is dropped.
 * - A connection that broke, went silent twice, or leads to a replica is made anew, through the sentinels where
 *   there are any.
 */

import { runningClock } from '../runningClock.ts';
import { Breaker, type BreakerState } from './breaker.ts';
import { configFault, connectRemote, faultOf, type RemoteClient, RemoteFault } from './remoteClient.ts';
import type { RemoteUrl } from './remoteUrl.ts';

type Lane = 'small' | 'large';

export interface RemoteLinkOptions {
  readonly url: RemoteUrl;
  readonly ca?: string | undefined;
  readonly connectMs: number;
  readonly callMs: number;
  /** Both lanes on one connection: what the bench compares with. Default false. */
  readonly oneConnection?: boolean;
  /** Called when the server is left out and when it is back. */
  readonly changed?: (state: BreakerState, reason: string) => void;
}

/** Silent calls in a row after which the connection is made anew: it may be half open. */
const SILENT_MAX = 2;

class LaneConnection {
  readonly #connect: () => Promise<RemoteClient>;
  #client: Promise<RemoteClient> | undefined;
  #silent = 0;
  #closed = false;
  connections = 0;

  constructor(connect: () => Promise<RemoteClient>) {
    this.#connect = connect;
  }

  client(): Promise<RemoteClient> {
    if (this.#closed) return Promise.reject(new RemoteFault('unreachable', 'the tier is closed'));
    if (this.#client !== undefined) return this.#client;
    this.connections++;
    const connecting = this.#connect();
    this.#client = connecting;
    connecting.catch(() => {
      if (this.#client === connecting) this.#client = undefined;
    });
    return connecting;
  }

  answered(): void {
    this.#silent = 0;
  }

  /** @param of the client that the call went to */
  failed({ kind }: RemoteFault, of: Promise<RemoteClient> | undefined): void {
    if (kind === 'silent') this.#silent++;
    const isOver = kind === 'readOnly' || kind === 'unreachable' || this.#silent >= SILENT_MAX;
    if (!isOver || of === undefined || this.#client !== of) return;
    this.#silent = 0;
    this.#client = undefined;
    drop(of);
  }

  close(): void {
    this.#closed = true;
    if (this.#client !== undefined) drop(this.#client);
    this.#client = undefined;
  }
}

function drop(client: Promise<RemoteClient>): void {
  client.then(
    (each) => each.close(),
    () => {},
  );
}

export class RemoteLink implements Disposable {
  readonly breaker: Breaker;
  readonly url: RemoteUrl;
  readonly #lanes: Record<Lane, LaneConnection>;
  readonly #closing: PromiseWithResolvers<never> = Promise.withResolvers<never>();

  private constructor(options: RemoteLinkOptions) {
    this.url = options.url;
    this.#closing.promise.catch(() => {});
    this.breaker = new Breaker(() => runningClock.nowMs(), options.changed);
    const connect = (): Promise<RemoteClient> => connectRemote(options);
    const large = new LaneConnection(connect);
    this.#lanes = { large, small: options.oneConnection === true ? large : new LaneConnection(connect) };
  }

  /**
   * Connects. A server that cannot be reached now is left out and tried again later.
   * @throws TKV_CONFIG naming `remote.url` where it does not let us in, or is not a Redis or Valkey of this kind
   */
  static async open(options: RemoteLinkOptions): Promise<RemoteLink> {
    const link = new RemoteLink(options);
    try {
      for (const lane of ['small', 'large'] as const) {
        await link.call(lane, options.connectMs, (client) => client.heads(['tierkv:probe'], 1));
      }
    } catch (error) {
      const fault = error instanceof RemoteFault ? configFault(error, options.url) : error;
      if (fault !== undefined) {
        link[Symbol.dispose]();
        throw fault;
      }
      options.changed?.('open', (error as RemoteFault).message);
    }
    return link;
  }

  get connections(): number {
    return this.#lanes.large.connections + this.#lanes.small.connections;
  }

  /**
   * Makes a call, unless the server is left out.
   * @param isRefusal which faults are the answer of a server that is well, as to a write that it has no room for
   * @throws {RemoteFault} within `deadlineMs`
   */
  async call<Answer>(
    lane: Lane,
    deadlineMs: number,
    make: (client: RemoteClient) => Promise<Answer>,
    isRefusal: (fault: RemoteFault) => boolean = () => false,
  ): Promise<Answer> {
    if (!this.breaker.allows()) {
      throw new RemoteFault('unreachable', `the server is left out for now: ${this.breaker.reason}`);
    }
    const connection = this.#lanes[lane];
    let used: Promise<RemoteClient> | undefined;
    let cancel = (): void => {};
    const late = new Promise<never>((_, reject) => {
      const tooLate = (): void => reject(new RemoteFault('silent', `no answer within ${deadlineMs} ms`));
      cancel = runningClock.alarm(deadlineMs, tooLate, true);
    });
    try {
      used = connection.client();
      const answer = await Promise.race([used.then(make), late, this.#closing.promise]);
      connection.answered();
      this.breaker.succeeded();
      return answer;
    } catch (error) {
      if (!(error instanceof RemoteFault) && isOurs(error)) {
        this.breaker.failed(String(error));
        throw error;
      }
      const fault = faultOf(error);
      if (isRefusal(fault)) {
        connection.answered();
        this.breaker.succeeded();
        throw fault;
      }
      connection.failed(fault, used);
      this.breaker.failed(fault.message);
      throw fault;
    } finally {
      cancel();
    }
  }

  /** Ends every call at once. */
  [Symbol.dispose](): void {
    this.#closing.reject(new RemoteFault('unreachable', 'the tier is closed'));
    this.#lanes.small.close();
    this.#lanes.large.close();
  }
}

/** An error of the configuration, such as a missing package, is not the server's fault. */
function isOurs(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'isTierKVError' in error;
}
