/** Who gets an answer: by Host, Origin, address and token; what a slow or a many-headed reader costs; what the command prints. */

import { spawn } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { KVRuntime } from '../../src/index.ts';
import {
  type Dashboard,
  type DashboardServer,
  dashboard,
  followedLogDashboard,
  logDashboard,
  serveDashboard,
} from '../../src/observe/dashboard/dashboard.ts';
import { framesOfLog } from '../../src/observe/dashboard/logFrames.ts';
import { blocks, cacheBelow, openRuntime } from '../embed/liveRuntime.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-dashboard-'));
const log = join(folder, 'decisions.log');
const command = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts');
let kv: KVRuntime;
let server: DashboardServer;
let board: Dashboard | undefined;

beforeAll(async () => {
  kv = await openRuntime({ ddrBytes: blocks(40), log });
  await cacheBelow(kv, 1, 1);
  server = await serveDashboard(
    async (access) => {
      board = await dashboard(kv, { ...access, hosts: ['kv.example'], everyMs: 50 });
      return board;
    },
    { host: '127.0.0.1', port: 0 },
  );
});

afterAll(async () => {
  await server.close();
  await kv.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

function ask(url: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = httpRequest(url, { headers, method, agent: false }, (response) => {
      const { statusCode: status = 0, headers: found } = response;
      if (found['content-type'] === 'text/event-stream') {
        asked.destroy();
        resolve({ status, headers: found, text: '' });
        return;
      }
      let text = '';
      response.on('data', (part) => (text += part));
      response.once('end', () => resolve({ status, headers: found, text }));
    });
    asked.once('error', reject);
    asked.end();
  });
}

it('the page, its parts and its data, with nothing from elsewhere', async () => {
  const page = await ask(server.url);
  expect(page.status).toBe(200);
  expect(page.headers['content-security-policy']).toContain("default-src 'none'");
  for (const [, file] of page.text.matchAll(/(?:src|href)="([^"]+)"/g)) {
    if (file === 'data:,') continue;
    expect(file).not.toMatch(/^(https?:)?\/\//);
    expect((await ask(server.url + file)).status, file).toBe(200);
  }
  expect(JSON.parse((await ask(`${server.url}frames.json`)).text).head.tiers).toEqual(['hbm', 'ddr']);
  expect((await ask(`${server.url}../../etc/passwd`)).status).toBe(404);
  expect((await ask(`${server.url}nothing`)).status).toBe(404);
});

it.each([
  ['another Host', { host: 'evil.example' }, 'GET', 403, /not known as "evil\.example"/],
  ['another Host with a port', { host: 'evil.example:80' }, 'GET', 403, /not known as/],
  ['the page of another site', { origin: 'http://evil.example' }, 'GET', 403, /another site/],
  ['an opaque Origin', { origin: 'null' }, 'GET', 403, /another site/],
  [
    'a script of another site',
    { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' },
    'GET',
    403,
    /another site/,
  ],
  ['a POST', {}, 'POST', 405, /only read/],
  ['a DELETE', {}, 'DELETE', 405, /only read/],
  ['the host that was given', { host: 'kv.example' }, 'GET', 200, /<title>/],
  [
    'a link from elsewhere',
    { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
    'GET',
    200,
    /<title>/,
  ],
] as const)('%s', async (_, headers, method, status, text) => {
  const answer = await ask(server.url, headers as Record<string, string>, method);
  expect([answer.status, answer.text]).toEqual([status, expect.stringMatching(text)]);
});

it.each(['//', '///', '/\\', 'http://['])('the address %s has no page, and hurts no server', async (path) => {
  const { port } = new URL(server.url);
  const status = await new Promise((resolve, reject) => {
    const asked = httpRequest({ host: '127.0.0.1', port, path, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    asked.once('error', reject);
    asked.end();
  });
  expect(status).toBe(404);
  expect((await ask(server.url)).status).toBe(200);
});

it('its own Origin is taken, another port is another site', async () => {
  const { host, origin } = new URL(server.url);
  expect((await ask(`${server.url}frames.json`, { host, origin })).status).toBe(200);
  expect((await ask(`${server.url}frames.json`, { host, origin: 'http://127.0.0.1:1' })).status).toBe(403);
});

it('open to other machines it has a token: in the address once, then in a cookie', async () => {
  const frames = framesOfLog(await wholeLog(), log);
  const open = await serveDashboard((access) => logDashboard(frames, access), { host: '0.0.0.0', port: 0 });
  try {
    const { port, searchParams } = new URL(open.url);
    const token = searchParams.get('token') ?? '';
    expect(token.length).toBeGreaterThan(20);
    const at = `http://127.0.0.1:${port}/`;
    expect((await ask(at)).status).toBe(401);
    expect((await ask(`${at}frames.json`)).status).toBe(401);
    expect((await ask(`${at}?token=${'x'.repeat(token.length)}`)).status).toBe(401);
    const first = await ask(`${at}?token=${token}`);
    expect([first.status, first.headers.location]).toEqual([303, '/']);
    const [cookie] = first.headers['set-cookie'] ?? [''];
    expect(cookie).toMatch(/HttpOnly; SameSite=Strict/);
    expect((await ask(at, { cookie: cookie.split(';')[0] })).status).toBe(200);
    expect((await ask(at, { cookie: 'tierkv_dashboard=%E0%A4%A' })).status).toBe(401);
    expect((await ask(`${at}frames.json`, { authorization: `Bearer ${token}` })).status).toBe(200);
  } finally {
    await open.close();
  }
});

it('a reader too many is told so, and gone readers are forgotten', async () => {
  const controllers = Array.from({ length: 32 }, () => new AbortController());
  const streams = await Promise.all(
    controllers.map(({ signal }) => fetch(`${server.url}events`, { signal })),
  );
  expect(streams.map(({ status }) => status)).toEqual(streams.map(() => 200));
  const refused = await ask(`${server.url}events`);
  expect([refused.status, refused.text]).toEqual([503, expect.stringContaining('32 pages are open')]);
  for (const controller of controllers) controller.abort();
  let status = 503;
  for (let i = 0; i < 500 && status === 503; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    status = (await ask(`${server.url}events`)).status;
  }
  expect(status).toBe(200);
});

it.each([
  [{ base: '/x/' }, /base is "\/x\/"/],
  [{ token: 'short' }, /token is shorter than 16/],
  [{ everyMs: 0 }, /everyMs is 0/],
  [{ tokn: 'x' }, /tokn.*token/],
])('options that cannot be kept: %j', async (options, message) => {
  await expect(dashboard(kv, options as object)).rejects.toThrow(message);
});

async function wholeLog(): Promise<string[]> {
  const own = join(folder, 'whole.log');
  const writing = await openRuntime({ ddrBytes: blocks(40), log: own });
  await cacheBelow(writing, 1, 1);
  await writing.close();
  return readFileSync(own, 'utf8').trimEnd().split('\n');
}

it('a log that is still written is followed to its end, line by line', async () => {
  const lines = await wholeLog();
  const growing = join(folder, 'growing.log');
  const half = lines.length >> 1;
  const text = `${lines.slice(0, half).join('\n')}\n`;
  writeFileSync(growing, text + lines[half].slice(0, 9)); // the next line is half there
  let end: (error?: unknown) => void = () => {};
  const ended = new Promise<unknown>((resolve) => {
    end = resolve;
  });
  const open = await serveDashboard(
    (access) => followedLogDashboard(growing, { ...access, everyMs: 50, onEnd: end }),
    { host: '127.0.0.1', port: 0 },
  );
  type Page = { head: { isWritten: boolean }; frames: readonly { readonly ended: number; at: number }[] };
  const page = async (): Promise<Page> => JSON.parse((await ask(`${open.url}frames.json`)).text);
  try {
    const before = await page();
    expect(before.head.isWritten).toBe(true);
    expect(before.frames.at(-1)).not.toEqual(framesOfLog(lines, growing).frames.at(-1));
    appendFileSync(growing, `${lines[half].slice(9)}\n${lines.slice(half + 1).join('\n')}\n`);
    expect(await ended).toBeUndefined();
    const after = await page();
    expect(after.head.isWritten).toBe(false);
    const {
      evictions: _e,
      returns: _r,
      requests: _q,
      ...last
    } = (after.frames.at(-1) ?? {}) as Record<string, unknown>;
    expect(JSON.parse(JSON.stringify(framesOfLog(lines, growing).frames.at(-1)))).toMatchObject(last);
  } finally {
    await open.close();
  }
});

it('of a log that is damaged while it is followed the page keeps what was there', async () => {
  const lines = await wholeLog();
  const growing = join(folder, 'damaged.log');
  writeFileSync(growing, `${lines.slice(0, 20).join('\n')}\n`);
  let end: (error?: unknown) => void = () => {};
  const ended = new Promise<unknown>((resolve) => {
    end = resolve;
  });
  const board = await followedLogDashboard(growing, { everyMs: 50, onEnd: end });
  appendFileSync(growing, `${lines[22]}\n`);
  expect(String(await ended)).toMatch(/damaged\.log:21 .*cut or edited/);
  board.close();
});

it('serve-dashboard prints its address, answers there, and ends with Ctrl+C; a cut log is one line', async () => {
  const lines = await wholeLog();
  const whole = join(folder, 'whole.log');
  const child = spawn(process.execPath, [command, 'serve-dashboard', whole, '--port', '0'], {
    stdio: 'pipe',
  });
  const url = await new Promise<string>((resolve, reject) => {
    let said = '';
    child.stdout.on('data', (part) => {
      said += part;
      const [found] = /http:\S+/.exec(said) ?? [];
      if (found !== undefined) resolve(found);
    });
    child.once('exit', (code) => reject(new Error(`it ended with ${code}`)));
  });
  expect((await ask(url)).text).toContain('<title>tierkv</title>');
  expect(JSON.parse((await ask(`${url}frames.json`)).text).frames.length).toBeGreaterThan(0);
  child.removeAllListeners('exit');
  const ended = new Promise((resolve) => child.once('close', resolve));
  child.kill('SIGINT');
  expect(await ended).toBe(130);
  const cut = join(folder, 'cut.log');
  writeFileSync(cut, `${lines.slice(0, -3).join('\n')}\n`);
  const failed = spawn(process.execPath, [command, 'serve-dashboard', cut], { stdio: 'pipe' });
  let said = '';
  failed.stderr.on('data', (part) => (said += part));
  expect(await new Promise((resolve) => failed.once('close', resolve))).toBe(2);
  expect(said).toMatch(/^tierkv: .*cut\.log:\d+ is the last line, and no end follows: .* \[TKV_INPUT\]\n$/);
});
