/**
 * Servers that are sick in each of several ways among well ones: they get few requests, no client notices, and they come back
 * by themselves. What was decided on the way is decided again from the log, line for line.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { Beginnings, ServerStanding } from '../../../src/serve/gateway/standing.ts';
import { ask, echo, gatewayOf, type Handler, streamedEcho, TestBackend, until } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-sick-'));
afterAll(() => rmSync(folder, { recursive: true }));

const token = '{"choices":[{"index":0,"text":"a","finish_reason":null}]}';

/** By what is wrong: what it answers, and whether a client can be spared it. */
const sick: readonly (readonly [string, Handler, boolean])[] = [
  ['a dead engine', (_, response) => void response.writeHead(500).end('{"error":{"message":"dead"}}'), true],
  [
    'a dead engine that answers 200',
    (_, response) => {
      response.setHeader('content-type', 'application/json');
      response.end('{"object":"error","message":"dead","code":500}');
    },
    true,
  ],
  [
    'streams that break',
    (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`data: ${token}\n\n`, () => setImmediate(() => request.socket.destroy()));
    },
    false,
  ],
  [
    'streams that end in an abort',
    (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(`data: ${token}\n\ndata: ${token.replace('null', '"abort"')}\n\ndata: [DONE]\n\n`);
    },
    false,
  ],
  ['no answer at all', () => {}, true],
];

/** Requests that come whatever became of the ones before, until it is over. @returns how many did not end with an answer */
async function traffic(gateway: Gateway, isOver: () => boolean): Promise<number> {
  let bad = 0;
  const asked: Promise<void>[] = [];
  while (!isOver()) {
    const one = ask(gateway, 'p', { stream: true }).then(async (response) => {
      const text = await response.text().catch(() => 'cut');
      if (response.status !== 200 || !text.includes('echo p')) bad++;
    });
    asked.push(one);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await Promise.all(asked);
  return bad;
}

describe('among three well ones', () => {
  it.each(sick)('one with %s is left alone until it is well', async (what, handler, spares) => {
    const log = join(folder, `${what.replaceAll(' ', '-')}.log`);
    {
      const well = await Promise.all([0, 1, 2].map(() => TestBackend.open(streamedEcho)));
      await using one = await TestBackend.open(streamedEcho);
      await using gateway = await gatewayOf([one, ...well], { log });
      const [seen] = gateway.pool.backends;
      let isOver = false;
      const clients = traffic(gateway, () => isOver);
      await until(() => one.seen.length > 3, 'it serves');
      one.handler = handler;
      await until(() => seen.standing.ejections > 0, 'it is ejected');
      const before = one.seen.length;
      const all = well.reduce((sum, each) => sum + each.seen.length, 0);
      // while it stays sick it is asked once in a while, and the others serve
      await until(() => well.reduce((sum, each) => sum + each.seen.length, 0) - all > 200, 'others serve');
      const share = (one.seen.length - before) / 200;
      expect(share).toBeLessThan(0.05);
      // what a hung one holds is asked for elsewhere once the request of its trial has waited in vain too
      if (what === 'no answer at all') await until(() => seen.standing.ejections > 1, 'it is tried');
      one.handler = streamedEcho;
      await until(() => seen.standing.state === 'trusted' && seen.isRoutable, 'it is back');
      const back = one.seen.length;
      await until(() => one.seen.length > back + 5, 'it serves again');
      isOver = true;
      const bad = await clients;
      if (spares) expect(bad).toBe(0);
      else expect(bad).toBeLessThan(20);
      for (const each of well) await each[Symbol.asyncDispose]();
    }
    expect((await decideAgain(log)).differences).toEqual([]);
  });

  it.each<[string, string | ((response: ServerResponse) => void)]>([
    ['answers 500', (response) => response.writeHead(500).end('x')],
    ['answers 501, as llama.cpp does', (response) => response.writeHead(501).end('{"error":{}}')],
    ['answers 503', (response) => response.writeHead(503).end('')],
    ['does not answer', () => {}],
    ['is a page for every path', '<!doctype html><html></html>'],
  ])('one whose /metrics %s is well, and serves', async (_what, metrics) => {
    await using one = await TestBackend.open(echo);
    await using other = await TestBackend.open(echo);
    one.metrics = metrics;
    await using gateway = await gatewayOf([one, other]);
    expect(gateway.pool.backends.map(({ isRoutable }) => isRoutable)).toEqual([true, true]);
    for (let i = 0; i < 8; i++) await (await ask(gateway, `p${i}`)).text();
    expect([one.seen.length, other.seen.length]).toEqual([4, 4]);
  });
});

it('a request that every server fails at speaks against none of them', async () => {
  const fails: Handler = (request, response, body) => {
    if (body.includes('poison')) response.writeHead(500).end('{"error":{"message":"no"}}');
    else echo(request, response, body);
  };
  await using a = await TestBackend.open(fails);
  await using b = await TestBackend.open(fails);
  await using gateway = await gatewayOf([a, b]);
  for (let i = 0; i < 12; i++) {
    expect((await ask(gateway, 'poison')).status).toBe(500);
    expect((await ask(gateway, 'well')).status).toBe(200);
  }
  expect(gateway.pool.backends.map(({ standing }) => standing.ejections)).toEqual([0, 0]);
  // twice each, and no more
  expect(a.seen.length + b.seen.length).toBe(36);
});

it('where all are sick none is ejected: an outlier is better than nothing', async () => {
  const fails: Handler = (request) => void request.socket.destroy();
  const breaks: Handler = (_, response) => void response.end('garbage');
  await using a = await TestBackend.open(breaks);
  await using b = await TestBackend.open(breaks);
  await using gateway = await gatewayOf([a, b]);
  for (let i = 0; i < 12; i++) expect((await ask(gateway, 'p')).status).toBe(502);
  a.handler = b.handler = echo;
  expect((await ask(gateway, 'p')).status).toBe(200);
  a.handler = fails;
});

it('what a server that is down holds is asked for elsewhere, and not waited for', async () => {
  let isHung = false;
  await using hung = await TestBackend.open((request, response, body) => {
    if (!isHung) echo(request, response, body);
  });
  await using well = await TestBackend.open(echo);
  await using gateway = await gatewayOf([hung, well]);
  const [seen] = gateway.pool.backends;
  isHung = true;
  // as a process that is stopped: connections are taken, and nothing is said
  hung.metrics = hung.health = () => {};
  const asked = [0, 1, 2, 3].map((i) => ask(gateway, `p${i}`));
  await until(() => !seen.isUp, 'it is down');
  for (const each of asked) expect((await each).status).toBe(200);
  expect(gateway.counts.failed).toBe(0);
});

it.each([
  ['says an error', '{"object":"error","message":"dead","code":500}'],
  [
    'gives up at the end, with params',
    '{"choices":[{"finish_reason":"abort"}],"kv_transfer_params":{"do_remote_prefill":true}}',
  ],
])(
  'a server for prompts that %s with status 200 is left alone, and its params are not used',
  async (_, said) => {
    const params = '{"choices":[],"kv_transfer_params":{"do_remote_prefill":true}}';
    await using sick = await TestBackend.open((_request, response) => void response.end(said));
    await using well = await TestBackend.open((_request, response) => void response.end(params));
    await using decode = await TestBackend.open(echo);
    await using gateway = await gatewayOf([], {
      backends: [
        { url: sick.url, id: 'sick', role: 'prefill' },
        { url: well.url, id: 'well', role: 'prefill' },
        { url: decode.url, id: 'decode', role: 'decode' },
      ],
    });
    const [first] = gateway.pool.backends;
    for (let i = 0; i < 12 && first.standing.ejections === 0; i++) {
      expect((await ask(gateway, `p${i}`)).status).toBe(200);
    }
    expect(first.standing.ejections).toBe(1);
    expect(gateway.counts.prefillsFailed).toBe(sick.seen.length);
    const withParams = decode.seen.filter(({ body }) => body.includes('do_remote_prefill'));
    expect(withParams).toHaveLength(well.seen.length);
  },
);

it('what a hung server holds whose polls answer is asked for elsewhere, though no request comes that could try it', async () => {
  let isHung = false;
  await using hung = await TestBackend.open((request, response, body) => {
    if (!isHung) echo(request, response, body);
  });
  await using well = await TestBackend.open(echo);
  await using gateway = await gatewayOf([hung, well]);
  isHung = true;
  const asked = Array.from({ length: 8 }, (_, i) => ask(gateway, `p${i}`));
  for (const each of asked) expect((await each).status).toBe(200);
  expect(hung.seen.length).toBe(4);
  const [seen] = gateway.pool.backends;
  expect(seen.isUp).toBe(true);
  expect(seen.standing.ejections).toBeGreaterThan(0);
});

it('a server that comes back is another one, unless it says that its process is the same', async () => {
  const says = (started: number): string => `process_start_time_seconds ${started}\n`;
  await using one = await TestBackend.open(echo);
  const metrics = one.metrics as string;
  one.metrics = metrics + says(100);
  await using gateway = await gatewayOf([one]);
  const [seen] = gateway.pool.backends;
  const gap = async (after: string): Promise<number> => {
    one.health = (response) => response.writeHead(503).end();
    await until(() => !seen.isUp, 'it is down');
    one.metrics = after;
    one.health = 'ok';
    await until(() => seen.isUp, 'it is up');
    return seen.instance;
  };
  const first = seen.instance;
  expect(await gap(metrics + says(100))).toBe(first);
  // counters that went on may be those of another process
  const second = await gap(metrics);
  expect(second).not.toBe(first);
  expect(await gap(metrics)).not.toBe(second);
});

describe('the rules, without a clock', () => {
  it('failures running, or half of the recent ends, make one suspect; successes between few do not', () => {
    const running = new ServerStanding();
    for (const isGood of [false, false, true, false, false]) running.ended(isGood);
    expect(running.isSuspect).toBe(false);
    running.ended(false);
    expect(running.isSuspect).toBe(true);
    const mixed = new ServerStanding();
    for (let i = 0; i < 20; i++) mixed.ended(i % 2 === 0);
    expect(mixed.isSuspect).toBe(true);
    const mostlyWell = new ServerStanding();
    for (let i = 0; i < 100; i++) mostlyWell.ended(i % 4 !== 0);
    expect(mostlyWell.isSuspect).toBe(false);
  });

  it('each time is twice as long as the one before, up to a minute, and begins anew after a good end', () => {
    const standing = new ServerStanding();
    let nowMs = 0;
    const times: number[] = [];
    for (let i = 0; i < 6; i++) {
      standing.eject(nowMs);
      times.push(standing.dueMs - nowMs);
      nowMs = standing.dueMs;
      standing.tryAgain(nowMs);
    }
    expect(times).toEqual([5000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    standing.ended(true);
    expect(standing.state).toBe('trusted');
    standing.eject(0);
    expect(standing.dueMs).toBe(5000);
  });

  it('a server that takes long for all it has is not silent while it says anything, or while others take as long', () => {
    const begin = (of: Beginnings, sentMs: number) => {
      const attempt = { sentMs, heardMs: -1, isGivenUp: false, giveUp: () => {} };
      of.attempts.add(attempt);
      return attempt;
    };
    const [one, other] = [new Beginnings(), new Beginnings()];
    const waiting = [0, 10, 20].map((ms) => begin(one, ms));
    for (const ms of [30, 40, 50]) other.heard(begin(other, ms), ms + 20);
    expect(one.isSilent([other], 2000, 0)).toBe(false);
    expect(one.isSilent([other], 4000, 0)).toBe(true);
    expect(one.isSilent([], 4000, 0)).toBe(false);
    other.heard(begin(other, 100), 2100); // others take two seconds: six of silence are little
    expect(one.isSilent([other], 4000, 0)).toBe(false);
    one.heard(waiting[0], 60_000);
    expect(one.isSilent([other], 62_000, 0)).toBe(false);
  });
});
