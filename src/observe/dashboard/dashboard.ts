/** The dashboard of a runtime as a handler for the server of the process, and the server of a decision log's. */

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError, described, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { tierLinks } from '../../runtime/tier/tier.ts';
import { watchRuntime } from '../metrics/watch.ts';
import { FollowedLog } from './followedLog.ts';
import { FrameHistory, FrameMaker, headOf } from './frames.ts';
import type { LogFrames } from './logFrames.ts';
import { isLoopback } from './operatorAccess.ts';
import { PageServer } from './pageServer.ts';

/** Where a dashboard lies in a server, and who may see it. */
export interface DashboardOptions {
  /** Where the page lies in the server, such as `/dashboard`. Default: everywhere, `''`. */
  readonly base?: string | undefined;
  /**
   * Asked of every client. Without one, only clients on this machine are answered, and nothing that a proxy passes on: give
   * one where the server has a port that others reach. Default: none.
   */
  readonly token?: string | undefined;
  /** Names by which clients call the server, beside `localhost`. Default: none. */
  readonly hosts?: readonly string[] | undefined;
  /** Heading of the page. Default `tierkv`. */
  readonly title?: string | undefined;
  /** Milliseconds between two frames. Default 1000. */
  readonly everyMs?: number | undefined;
  /** Measured limits of links in bytes a second, such as `{ ddrToHbm: 20e9 }`. Default: the best seen so far. */
  readonly limits?: Readonly<Record<string, number>> | undefined;
}

function requireBase(base: string, field: string): string {
  if (typeof base === 'string' && /^(\/[\w.-]+)*$/.test(base)) return base;
  const remedy = "Give a path such as '/dashboard', without a slash at its end.";
  throw configError(field, `is ${described(base)}`, remedy);
}

/** Its value stays out of messages. */
function requireToken(token: string, field: string): string {
  is.text().read(token, field, 'TKV_CONFIG');
  if (token.length >= 16) return token;
  throw configError(field, 'is shorter than 16 characters', 'Give a random one.');
}

const dashboardOptionsTable = optionTable(
  {
    base: is.optional(is.by(requireBase), ''),
    token: is.optional(is.by(requireToken)),
    hosts: is.optional(is.list(is.name(), 'Name hosts that browsers may come by.'), []),
    title: is.optional(is.text()),
    everyMs: is.optional(is.integer(50, 3_600_000)),
    limits: is.optional(is.object()),
  } satisfies Kinds<DashboardOptions>,
  'TKV_CONFIG',
);

/** Ten minutes at a frame a second: some 3 MB. */
const HISTORY_FRAMES = 600;

/** A dashboard as a handler for your own HTTP server. */
export interface Dashboard {
  /** For `node:http`, connect and express. A path that is not below `base` goes to `next`, or gets 404. */
  readonly handle: (request: IncomingMessage, response: ServerResponse, next?: () => void) => void;
  /** Ends all pages, and takes no more frames. */
  close(): void;
}

/**
 * The dashboard of a runtime, live. A frame a second is taken as long as it is open, whether or not a page looks.
 * @throws TKV_CONFIG for invalid options, or without vega; TKV_STATE for a runtime that is closed
 */
export async function dashboard(kv: KVRuntime, options: DashboardOptions = {}): Promise<Dashboard> {
  checkInputs({ kv, options }, { kv: is.fields({ begin: is.func() }), options: is.optional(is.object()) });
  const { title = 'tierkv', everyMs = 1000, limits = {}, ...access } = checked(options);
  if (kv.isClosed) throw new TierKVError('TKV_STATE', 'kv is closed. Open another runtime.', { field: 'kv' });
  const watch = watchRuntime(kv);
  const history = new FrameHistory(HISTORY_FRAMES);
  const head = (): ReturnType<typeof headOf> =>
    headOf(watch.cache, { mode: 'live', title, limits, note: '' });
  const pages = new PageServer({ head, frames: () => history.frames }, access);
  const maker = new FrameMaker({
    cache: watch.cache,
    requests: watch.requests,
    queue: () =>
      watch.scheduler() ?? { running: kv.manager.inspect.openSequences, waiting: watch.waitingForRoom },
    owners: () => watch.owners(),
  });
  const take = (): void => {
    const frame = maker.frame(kv.nowUs());
    history.push(frame);
    pages.tell(frame);
  };
  take();
  const timer = setInterval(take, everyMs).unref();
  return {
    handle: (request, response, next) => handled(pages, request, response, next),
    close: () => {
      clearInterval(timer);
      maker.close();
      pages.close();
    },
  };
}

/** The dashboard of a decision log. @throws as `dashboard` */
export async function logDashboard(
  log: LogFrames,
  options: Omit<DashboardOptions, 'everyMs'> = {},
): Promise<Dashboard> {
  checkInputs(
    { options, log },
    {
      options: is.optional(is.object()),
      log: is.fields({ head: is.fields({ title: is.text() }), frames: is.list(is.object()) }),
    },
  );
  const { head, frames } = log;
  const { title = head.title, limits = {}, ...access } = checked(options);
  const pages = new PageServer({ head: () => ({ ...head, title, limits }), frames: () => frames }, access);
  return {
    handle: (request, response, next) => handled(pages, request, response, next),
    close: () => pages.close(),
  };
}

interface FollowOptions extends DashboardOptions {
  /** Told once, when no more is taken: with the error of a log that is damaged, without one at its end. */
  readonly onEnd?: ((error?: unknown) => void) | undefined;
}

/**
 * The dashboard of a decision log that a run still writes: a frame every `everyMs` in which lines came.
 * @throws TKV_INPUT for a log that is damaged or has no head yet; as `dashboard`
 */
export async function followedLogDashboard(path: string, options: FollowOptions = {}): Promise<Dashboard> {
  checkInputs({ path, options }, { path: is.name(), options: is.optional(is.object()) });
  const { onEnd = () => {}, ...plain } = options;
  const { title, everyMs = 1000, limits = {}, ...access } = checked(plain);
  const log = new FollowedLog(path);
  let pages: PageServer;
  let now: LogFrames;
  try {
    log.read();
    now = log.frames();
    const head = (): LogFrames['head'] => ({
      ...now.head,
      limits,
      ...(title === undefined ? {} : { title }),
    });
    pages = new PageServer({ head, frames: () => now.frames }, access);
  } catch (error) {
    log[Symbol.dispose]();
    throw error;
  }
  const end = (error?: unknown): void => {
    clearInterval(timer);
    log[Symbol.dispose]();
    now = { ...now, head: { ...now.head, isWritten: false } };
    onEnd(error);
  };
  const take = (): void => {
    try {
      if (log.read()) {
        now = log.frames();
        pages.tell(now.frames[now.frames.length - 1]);
      }
    } catch (error) {
      end(error);
      return;
    }
    if (log.hasEnded) end();
  };
  let isOpen = true;
  const timer = setInterval(take, everyMs).unref();
  return {
    handle: (request, response, next) => handled(pages, request, response, next),
    close: () => {
      if (!isOpen) return;
      isOpen = false;
      if (now.head.isWritten === true) log[Symbol.dispose]();
      clearInterval(timer);
      pages.close();
    },
  };
}

function checked(options: DashboardOptions): DashboardOptions & {
  readonly base: string;
  readonly token: string | undefined;
  readonly hosts: readonly string[];
} {
  const { hosts, ...rest } = dashboardOptionsTable.read(options);
  const links = tierLinks().map(({ name }) => name);
  const limit = is.optional(is.positive());
  optionTable(Object.fromEntries(links.map((link) => [link, limit])), 'TKV_CONFIG').read(
    rest.limits ?? {},
    'limits',
  );
  return { token: undefined, ...rest, hosts: hosts.map((host) => host.toLowerCase()) };
}

function handled(
  pages: PageServer,
  request: IncomingMessage,
  response: ServerResponse,
  next?: () => void,
): void {
  if (pages.handle(request, response)) return;
  if (next !== undefined) next();
  else response.writeHead(404, { 'content-type': 'text/plain' }).end('This page does not exist.\n');
}

// A server of its own.

interface ListenOptions {
  readonly host: string;
  readonly port: number;
}

/** A dashboard with a server of its own. */
export interface DashboardServer {
  /** To be opened in a browser; it has the token, where there is one. */
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Opens an HTTP server of its own for the dashboard that `make` gives. On an address that other machines reach, there is a token: one is made.
 * @throws TKV_CONFIG where the address cannot be taken
 */
export async function serveDashboard(
  make: (access: Pick<DashboardOptions, 'token' | 'hosts'>) => Promise<Dashboard>,
  place: ListenOptions,
): Promise<DashboardServer> {
  checkInputs({ make, place }, { make: is.func(), place: is.fields({ host: is.text(), port: is.number() }) });
  const { host, port } = place;
  const token = isLoopback(host) ? undefined : randomBytes(24).toString('base64url');
  const anyName = host === '0.0.0.0' || host === '::';
  const names = anyName ? await addressesOfMachine() : [host];
  const page = await make({ token, hosts: names });
  const server = createServer(page.handle);
  try {
    await listening(server, host, port);
  } catch (cause) {
    page.close();
    const { code = '' } = cause as NodeJS.ErrnoException;
    throw new TierKVError(
      'TKV_CONFIG',
      `port ${port} of ${host} cannot be listened at (${code}). Give another one; 0 takes any that is free.`,
      { field: 'port', cause },
    );
  }
  const { port: taken } = server.address() as AddressInfo;
  const shown = anyName ? (names[0] ?? 'localhost') : host.includes(':') ? `[${host}]` : host;
  return {
    url: `http://${shown}:${taken}/${token === undefined ? '' : `?token=${token}`}`,
    close: async () => {
      page.close();
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

async function addressesOfMachine(): Promise<string[]> {
  const { hostname, networkInterfaces } = await import('node:os');
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const outside = addresses.filter(({ internal, family }) => !internal && family === 'IPv4');
  return [...outside.map(({ address }) => address), hostname().toLowerCase()];
}

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port }, resolve);
  });
}
