/**
 * The dashboard's page and its data over HTTP, for a server of its own and as a handler in a server that is there. It only
 * reads: GET and HEAD, and nothing that a request says changes anything.
 *
 * Who may read it is the rule of operatorAccess.ts. A browser brings the token once in the URL, from then on in a cookie that
 * only this site sends.
 */

import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { dataFolder } from '../../packageFiles.ts';
import { TierKVError } from '../../runtime/errors.ts';
import type { DashboardFrame, DashboardHead } from './frames.ts';
import { OperatorAccess } from './operatorAccess.ts';

/** Readers at a time: each keeps a socket. */
const READERS_MOST = 32;
/** Bytes that may wait for a slow reader; beyond it, it misses frames until it has read. */
const WAITING_BYTES_MOST = 1 << 20;

interface PageAccess {
  /** Where the page lies, without a slash at its end: '' or such as '/dashboard'. */
  readonly base: string;
  /** Asked of every client, where it is given. */
  readonly token: string | undefined;
  /** Names, with a port or without, by which clients may call this server, beside those of this machine. */
  readonly hosts: readonly string[];
}

interface PageData {
  head(): DashboardHead;
  frames(): readonly DashboardFrame[];
}

export class PageServer {
  readonly #data: PageData;
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #access: OperatorAccess;
  readonly #files: ReadonlyMap<string, PageFile>;
  readonly #readers: Set<ServerResponse> = new Set();

  /** @throws TKV_CONFIG where vega is not installed */
  constructor(data: PageData, { base, token, hosts }: PageAccess) {
    this.#data = data;
    this.#base = base;
    this.#token = token;
    this.#access = new OperatorAccess({ token, hosts, what: 'The dashboard' });
    this.#files = pageFiles();
  }

  get readers(): number {
    return this.#readers.size;
  }

  /** Answers a request for the page. @returns false, with nothing done, for a path that is malformed or not below `base` */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    const base = this.#base;
    const url = URL.parse(request.url ?? '/', 'http://page');
    if (url === null) return false; // such as `//`, which a client may ask for
    if (url.pathname !== base && !url.pathname.startsWith(`${base}/`)) return false;
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return refuse(response, 405, 'The dashboard is only read. Use GET.');
    }
    const given = url.searchParams.get('token') ?? undefined;
    const refusal = this.#access.refusal(request, given ?? cookieOf(request));
    if (refusal !== undefined) return refuse(response, refusal.status, refusal.message);
    if (given !== undefined && this.#token !== undefined) {
      // out of the address, so that it stays in no history and no log of a next page
      const cookie = `tierkv_dashboard=${encodeURIComponent(this.#token)}; HttpOnly; SameSite=Strict; Path=${base || '/'}`;
      response
        .writeHead(303, { location: `${base}/`, 'set-cookie': cookie, 'cache-control': 'no-store' })
        .end();
      return true;
    }
    if (url.pathname === base && base !== '') {
      response.writeHead(308, { location: `${base}/` }).end();
      return true;
    }
    const name = url.pathname.slice(base.length + 1) || 'page.html';
    if (name === 'events') return this.#stream(response);
    if (name === 'frames.json')
      return send(response, 'application/json', Buffer.from(JSON.stringify(this.#all())));
    const file = this.#files.get(name);
    if (file === undefined) return refuse(response, 404, 'This page does not exist. Open the folder above.');
    return send(response, file.type, file.body);
  }

  /** Tells every reader of a frame. A reader that has not read what it was sent misses it. */
  tell(frame: DashboardFrame): void {
    if (this.#readers.size === 0) return;
    const text = `data: ${JSON.stringify({ frame })}\n\n`;
    for (const reader of this.#readers) if (reader.writableLength < WAITING_BYTES_MOST) reader.write(text);
  }

  close(): void {
    for (const reader of this.#readers) reader.end();
    this.#readers.clear();
  }

  #all(): { head: DashboardHead; frames: readonly DashboardFrame[] } {
    return { head: this.#data.head(), frames: this.#data.frames() };
  }

  #stream(response: ServerResponse): boolean {
    if (this.#readers.size >= READERS_MOST) {
      return refuse(response, 503, `${READERS_MOST} pages are open. Close one of them.`);
    }
    response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
    response.write(`retry: 2000\ndata: ${JSON.stringify(this.#all())}\n\n`);
    this.#readers.add(response);
    response.once('close', () => this.#readers.delete(response));
    return true;
  }
}

function cookieOf({ headers: { cookie = '' } }: IncomingMessage): string | undefined {
  const found = /(?:^|; )tierkv_dashboard=([^;]*)/.exec(cookie)?.[1];
  try {
    return found === undefined ? undefined : decodeURIComponent(found);
  } catch {
    return undefined;
  }
}

// Vega compiles its expressions by Function: hence 'unsafe-eval'. They come from this package alone.
const headers: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'content-security-policy':
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
};

function send(response: ServerResponse, type: string, body: Buffer): true {
  response.writeHead(200, { ...headers, 'content-type': type, 'content-length': body.length }).end(body);
  return true;
}

function refuse(response: ServerResponse, status: number, text: string): true {
  response.writeHead(status, { ...headers, 'content-type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
  return true;
}

/** A file of the page. It is read when a page first asks for it, since a server whose dashboard stays closed has no use for it. */
class PageFile {
  readonly type: string;
  readonly #read: () => Buffer;
  #body: Buffer | undefined;

  constructor(type: string, read: () => Buffer) {
    this.type = type;
    this.#read = read;
  }

  get body(): Buffer {
    this.#body ??= this.#read();
    return this.#body;
  }
}

/** Files of the page, by name: its own, the drawing library and the charts compiled for it. @throws TKV_CONFIG without the library */
function pageFiles(): ReadonlyMap<string, PageFile> {
  vegaPath('the dashboard');
  const own = (name: string, type: string): [string, PageFile] => {
    return [name, new PageFile(type, () => readFileSync(new URL(`dashboard/${name}`, dataFolder())))];
  };
  return new Map([
    own('page.html', 'text/html; charset=utf-8'),
    own('page.css', 'text/css; charset=utf-8'),
    own('page.js', 'text/javascript; charset=utf-8'),
    own('charts.json', 'application/json'),
    ['vega.js', new PageFile('text/javascript; charset=utf-8', () => vegaForBrowsers('the dashboard'))],
  ]);
}

/** Vega in one file that a page can load. @param use what needs it, for the error @throws TKV_CONFIG where it is not installed */
export function vegaForBrowsers(use: string): Buffer {
  return readFileSync(vegaPath(use));
}

function vegaPath(use: string): string {
  try {
    const entry = createRequire(import.meta.url).resolve('vega');
    return entry.replace(/[^/\\]+$/, 'vega.min.js');
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      `${use} needs the optional package vega, which is not installed. Run: npm install vega vega-lite`,
      { field: 'vega', cause },
    );
  }
}
