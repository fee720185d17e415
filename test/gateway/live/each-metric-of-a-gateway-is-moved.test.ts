/** Each metric of a gateway is moved by what it counts; its page, the reference page and Prometheus's tool have the same list. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ValueHistogram } from '../../../src/observe/metrics/histogram.ts';
import { prometheus } from '../../../src/observe/metrics/prometheus.ts';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { gatewayMetrics } from '../../../src/serve/gateway/gatewayMetrics.ts';
import { bundleOf, prefixBundle } from '../recordedRun.ts';
import {
  ask,
  echo,
  gatewayOf,
  operatorPage,
  streamedEcho,
  TestBackend,
  textOf,
  until,
  wellMetrics,
} from './backends.ts';

/** Names of metrics that a test has moved so far, without `tierkv_gateway_`. */
const moved = new Set<string>();

function readings(gateway: Gateway): Map<string, number> {
  return new Map(
    gatewayMetrics.flatMap(({ name, labels, read }) =>
      read(gateway).map(({ labels: own, value }) => {
        expect(Object.keys(own), name).toEqual([...labels]);
        return [
          `${name.slice('tierkv_gateway_'.length)}${JSON.stringify(own)}`,
          value instanceof ValueHistogram ? value.count : value,
        ] as const;
      }),
    ),
  );
}

/** Requests that came in, less all that are open or have one of the outcomes. */
function unaccounted({ counts, openRequests }: Gateway): number {
  const { requests, completed, backendErrors, invalid, rejected, unroutable, failed, clientsLeft } = counts;
  const ended = completed + backendErrors + invalid + rejected + unroutable + failed + clientsLeft;
  return requests - openRequests - ended - counts.brokenAnswers;
}

/** @returns what the act moved */
async function moves(gateway: Gateway, act: () => unknown): Promise<string[]> {
  const before = readings(gateway);
  await act();
  expect(unaccounted(gateway), 'each request is open or has one outcome').toBe(0);
  const names = [...readings(gateway)]
    .filter(([series, value]) => value !== (before.get(series) ?? 0))
    .map(([series]) => series.split('{')[0]);
  for (const name of names) moved.add(name);
  return names;
}

const has = (...names: string[]): unknown => expect.arrayContaining(names);
const rejecting = { type: 'parameterized', template: 'reject-all', parameters: {} };
const routes = (source: string) => bundleOf({ routing: { type: 'code', language: 'starlark', source } });

describe('requests', () => {
  it('that are answered, with their tokens and times, and that shadows would have treated otherwise', async () => {
    await using a = await TestBackend.open(streamedEcho);
    await using gateway = await gatewayOf([a], {
      shadows: [
        { name: 'none', bundle: bundleOf({ admission: rejecting }) },
        { name: 'elsewhere', bundle: routes('def route(r, c, i):\n  return 0\n') },
      ],
    });
    expect(await moves(gateway, async () => (await ask(gateway, 'p', { stream: true })).text())).toEqual(
      has(
        'requests_total',
        'completed_total',
        'prompt_tokens_total',
        'cached_tokens_total',
        'generation_tokens_total',
        'time_to_first_token_seconds',
        'request_latency_seconds',
        'backend_requests_total',
        'shadow_admissions_total',
        'shadow_other_verdicts_total',
        'shadow_routes_total',
      ),
    );
    const { promptTokens, cachedTokens, outputTokens } = gateway.measures;
    expect([promptTokens, cachedTokens, outputTokens]).toEqual([20, 16, 3]);
  });

  it('that a shadow sends elsewhere', async () => {
    await using a = await TestBackend.open(echo);
    await using b = await TestBackend.open(echo);
    const toFirst = routes('def route(r, c, i):\n  return 0\n');
    await using gateway = await gatewayOf([a, b], { shadows: [{ name: 'first', bundle: toFirst }] });
    const four = async (): Promise<void> => {
      for (let i = 0; i < 4; i++) await ask(gateway, `p${i}`);
    };
    expect(await moves(gateway, four)).toEqual(has('shadow_other_targets_total'));
  });

  it('that are turned away, that no server can take, that a policy fails at', async () => {
    await using a = await TestBackend.open(echo);
    await using closed = await gatewayOf([a], { policy: bundleOf({ admission: rejecting }) });
    expect(await moves(closed, () => ask(closed, 'p'))).toEqual(has('rejected_total'));
    const list = (): Promise<Response> =>
      fetch(`${closed.url}/v1/completions`, { method: 'POST', body: '[]' });
    expect(await moves(closed, list)).toEqual(has('requests_total', 'invalid_total'));
    const divides = routes('def score(r, c, i):\n  return [1 / (x.inFlight * 0) for x in i]\n');
    await using open = await gatewayOf([a], { policy: divides });
    expect(await moves(open, () => ask(open, 'p'))).toEqual(has('policy_fallbacks_total'));
    const drains = (): void => open.pool.drain(open.pool.backends[0], true);
    expect(await moves(open, drains)).toEqual(has('backend_draining'));
    expect(await moves(open, () => ask(open, 'p'))).toEqual(has('unroutable_total'));
  });

  it('that are refused before any decision, each by its code, and are in no other count', async () => {
    await using a = await TestBackend.open(echo);
    const tenants = new Map([['key', 'tenant']]);
    await using gateway = await gatewayOf([a], { tenants, limits: { bodyBytes: 1000 } });
    const authorization = 'Bearer key';
    const asks: readonly (readonly [code: string, status: number, act: () => Promise<Response>])[] = [
      ['not_found', 404, () => fetch(`${gateway.url}/other`)],
      ['invalid_api_key', 401, () => ask(gateway, 'p', {}, { authorization: 'Bearer other' })],
      ['body_too_large', 413, () => ask(gateway, 'x'.repeat(2000), {}, { authorization })],
      [
        'method_not_allowed',
        405,
        () => fetch(`${gateway.url}/v1/x`, { method: 'PUT', body: 'x', headers: { authorization } }),
      ],
    ];
    for (const [code, status, act] of asks) {
      const series = `tierkv_gateway_refused_total{why="${code}"} 1`;
      const names = await moves(gateway, async () => expect((await act()).status).toBe(status));
      expect(names.filter((each) => each !== 'backend_report_age_seconds')).toEqual(['refused_total']);
      expect(await (await operatorPage(gateway, '/metrics')).text()).toContain(series);
    }
    const head = async (text: string): Promise<string> =>
      new Promise((resolve) => {
        const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(text));
        let said = '';
        socket.on('data', (data) => (said += data.toString()));
        socket.on('close', () => resolve(said.split(' ')[1]));
      });
    expect(await head('hello\r\n\r\n')).toBe('400');
    expect(await head(`GET / HTTP/1.1\r\nx: ${'x'.repeat(40_000)}\r\n\r\n`)).toBe('431');
    const broken =
      'POST /v1/x HTTP/1.1\r\nhost: a\r\nauthorization: Bearer key\r\ntransfer-encoding: chunked\r\n\r\nno\r\n';
    expect(await head(broken)).toBe('400');
    const counted = { bad_head: 1, head_too_large: 1, upload_broken: 1 };
    await until(() => gateway.counts.refused.has('upload_broken'), 'the broken body is counted');
    const codes = Object.fromEntries(asks.map(([code]) => [code, 1]));
    expect(Object.fromEntries(gateway.counts.refused)).toEqual({ ...codes, ...counted });
    expect(gateway.counts.requests).toBe(0);
  });

  it('that fail, are tried again, break off, end in an error of the server', async () => {
    await using a = await TestBackend.open((request) => request.socket.destroy());
    await using b = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a, b]);
    const both = async (): Promise<void> => {
      for (let i = 0; i < 2; i++) expect(await textOf(await ask(gateway, 'p'))).toBe('echo p');
    };
    expect(await moves(gateway, both)).toEqual(has('retries_total', 'backend_failures_total'));
    await using once = await gatewayOf([b], { limits: { retries: 0 } });
    b.handler = (_, response) => void response.end('<html></html>');
    expect(await moves(once, () => ask(once, 'p'))).toEqual(has('failed_total'));
    b.handler = (_, response) => void response.writeHead(400).end('{"error":{"message":"no"}}');
    expect(await moves(once, () => ask(once, 'p'))).toEqual(has('backend_errors_total'));
    b.handler = (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"choices":[{"index":0,"text":"x"}]}\n\n', () =>
        setTimeout(() => request.socket.destroy(), 20),
      );
    };
    const breaks = async (): Promise<void> => {
      await expect(ask(once, 'p', { stream: true }).then((begun) => begun.text())).rejects.toThrow();
      await until(() => once.openRequests === 0, 'it has ended');
    };
    expect(await moves(once, breaks)).toEqual(has('broken_answers_total'));
  });

  it('of chats that no template renders, and of prompts that a server counts otherwise', async () => {
    await using a = await TestBackend.open(echo);
    const tokenizer = join(import.meta.dirname, '../../../examples/server/tinyModel/files/tokenizer.json');
    await using gateway = await gatewayOf([a], { tokenizer, policy: prefixBundle });
    const chat = { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] };
    const post = (): Promise<Response> =>
      fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(chat) });
    expect(await moves(gateway, post)).toEqual(has('chats_by_text_total'));
    expect(await moves(gateway, () => ask(gateway, 'p'))).toEqual(has('prompts_miscounted_total'));
  });

  it('whose answer ends for a reason that is not known, which is told by its name, and beyond some as another', async () => {
    let reasons = 0;
    await using a = await TestBackend.open((_, response) => {
      const choices = [{ index: 0, text: 'a', finish_reason: `odd ${reasons++}` }];
      response.end(JSON.stringify({ choices }));
    });
    const told: string[] = [];
    await using gateway = await gatewayOf([a], { noted: (note) => told.push(note) });
    expect(await moves(gateway, () => ask(gateway, 'p'))).toEqual(
      has('unknown_ends_total', 'completed_total'),
    );
    for (let i = 0; i < 20; i++) await ask(gateway, 'p');
    const { unknownEnds } = gateway.counts;
    expect([unknownEnds.size, unknownEnds.get('odd 0'), unknownEnds.get('other')]).toEqual([17, 1, 5]);
    expect(told).toEqual([expect.stringContaining('(odd 0): these answers count as completed')]);
    expect(gateway.notes.at(-1)).toContain('odd 15, other');
    expect(await (await operatorPage(gateway, '/metrics')).text()).toContain(
      'tierkv_gateway_unknown_ends_total{reason="odd 3"} 1\n',
    );
  });

  it('whose prompt one server computes for another, or fails to', async () => {
    await using prefill = await TestBackend.open((_, response) =>
      response.end('{"choices":[],"kv_transfer_params":{"do_remote_prefill":true}}'),
    );
    await using decode = await TestBackend.open(echo);
    await using gateway = await gatewayOf([], {
      backends: [
        { url: prefill.url, role: 'prefill' },
        { url: decode.url, role: 'decode' },
      ],
    });
    expect(await moves(gateway, () => ask(gateway, 'p'))).toEqual(has('prefills_total'));
    prefill.handler = echo;
    expect(await moves(gateway, () => ask(gateway, 'p'))).toEqual(has('prefills_failed_total'));
  });

  it('whose prompt is missed, by the reason', async () => {
    await using a = await TestBackend.open((_, response) => {
      const usage = {
        prompt_tokens: 2000,
        completion_tokens: 1,
        prompt_tokens_details: { cached_tokens: 0 },
      };
      response.end(JSON.stringify({ choices: [{ index: 0, text: 'a', finish_reason: 'stop' }], usage }));
    });
    await using gateway = await gatewayOf([a], { diagnostics: true });
    const prompt = Array.from({ length: 300 }, (_, i) => `line ${i} of a prompt\n`).join('');
    expect(await moves(gateway, () => ask(gateway, prompt))).toEqual(has('cache_misses_total'));
    const again = await moves(gateway, () => ask(gateway, `${prompt}and more`));
    expect(again).toEqual(has('cache_misses_total', 'cache_lost_tokens_total'));
    expect([...gateway.measures.misses.keys()]).toEqual(['never_seen', 'evicted']);
  });

  it('that are under way, and whose client leaves', async () => {
    await using a = await TestBackend.open(() => {});
    await using gateway = await gatewayOf([a]);
    const leaving = new AbortController();
    let left: Promise<unknown> | undefined;
    const begins = async (): Promise<void> => {
      left = ask(gateway, 'p', {}, {}, leaving.signal).catch(() => {});
      await until(() => a.seen.length === 1, 'it was asked');
    };
    expect(await moves(gateway, begins)).toEqual(has('open_requests', 'backend_in_flight'));
    const leaves = async (): Promise<void> => {
      leaving.abort();
      await left;
      await until(() => gateway.openRequests === 0, 'it has ended');
    };
    expect(await moves(gateway, leaves)).toEqual(has('clients_left_total', 'open_requests'));
  });
});

it('servers: reports that cannot be true, that grow old, a new process, one that is gone', async () => {
  await using a = await TestBackend.open(echo);
  await using gateway = await gatewayOf([a]);
  const [backend] = gateway.pool.backends;
  a.metrics = wellMetrics.replace('0.25', '25');
  expect(await moves(gateway, () => until(() => backend.counts.lies > 0, 'a lie is seen'))).toEqual(
    has('backend_refused_reports_total', 'backend_report_age_seconds'),
  );
  a.metrics = wellMetrics.replace('} 160', '} 16').replace('} 80', '} 8');
  expect(await moves(gateway, () => until(() => backend.instance === 1, 'another instance'))).toEqual(
    has('backend_restarts_total'),
  );
  const dies = async (): Promise<void> => {
    await a.kill();
    await until(() => !backend.isUp, 'it is down');
  };
  expect(await moves(gateway, dies)).toEqual(has('backend_up'));
});

it('a server that fails as no other does, and is left alone', async () => {
  await using dead = await TestBackend.open((_, response) => void response.writeHead(500).end('{}'));
  await using well = await TestBackend.open(echo);
  await using gateway = await gatewayOf([dead, well]);
  const asks = async (): Promise<void> => {
    for (let i = 0; i < 8; i++) expect((await ask(gateway, 'p')).status).toBe(200);
  };
  expect(await moves(gateway, asks)).toEqual(has('backend_ejections_total'));
});

it('and there are no others; the pages have each, with its help', async () => {
  const names = gatewayMetrics.map(({ name }) => name);
  expect(names.filter((name) => !moved.has(name.slice('tierkv_gateway_'.length)))).toEqual([]);
  await using a = await TestBackend.open(echo);
  await using gateway = await gatewayOf([a], {
    shadows: [{ name: 'a "b"', bundle: bundleOf({ admission: rejecting }) }],
  });
  await ask(gateway, 'p');
  const text = await (await operatorPage(gateway, '/metrics')).text();
  for (const { name, help, kind } of gatewayMetrics) {
    expect(text).toContain(`# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n`);
  }
  expect(text).toContain('tierkv_gateway_shadow_admissions_total{shadow="a \\"b\\""} 1\n');
  const own = await (await prometheus(gateway)).text();
  const lines = (page: string): string[] =>
    page.split('\n').filter((line) => line !== '' && !/(age_seconds|requests_total)/.test(line));
  expect(lines(own)).toEqual(lines(text));

  const page = readFileSync(join(import.meta.dirname, '../../../docs/reference/metrics.md'), 'utf8');
  const rows = [
    ...page.matchAll(/^\| `(tierkv_gateway_\w+)` \| (\w+) \| ([^|]*) \| `([^|]*)` \| ([^|]*) \|$/gm),
  ].map(([, name, kind, labels, unit, help]) => [name, kind, labels.trim(), unit, help.trim()]);
  expect(rows).toEqual(
    gatewayMetrics.map(({ name, kind, labels, unit, help }) => [
      name,
      kind,
      labels.map((label) => `\`${label}\``).join(', '),
      unit,
      help,
    ]),
  );
});

const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
if (!hasPromtool)
  console.log('SKIPPED: promtool check metrics of a gateway; run: apt-get install prometheus');

it.skipIf(!hasPromtool)('promtool is content with the page', async () => {
  await using a = await TestBackend.open(echo);
  await using gateway = await gatewayOf([a]);
  await ask(gateway, 'p');
  const input = await (await operatorPage(gateway, '/metrics')).text();
  const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], { input, encoding: 'utf8' });
  expect([status, `${stdout}${stderr}`]).toEqual([0, '']);
});
