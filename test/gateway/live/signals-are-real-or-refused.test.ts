/** What policies may read is what servers and clients said. A policy that reads what no server says is refused. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { bundleOf } from '../recordedRun.ts';
import { answer, ask, echo, gatewayOf, TestBackend, until, wellMetrics } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-signals-'));
afterAll(() => rmSync(folder, { recursive: true }));

const reads = (field: string) =>
  bundleOf({
    routing: {
      type: 'code',
      language: 'starlark',
      source: `def score(request, cluster, instances):\n  return [-i.${field} for i in instances]\n`,
    },
  });
const tree = bundleOf({
  routing: {
    type: 'decisionTree',
    root: {
      condition: { feature: 'instance.reloadRate', comparison: '>', value: 5 },
      trueChild: { action: 'score', value: 0 },
      falseChild: { action: 'score', value: 1 },
    },
  },
});
const moved = (down: number): string =>
  `${wellMetrics}tierkv_store_blocks_total{tier="ddr"} ${down}\ntierkv_load_blocks_total{tier="ddr"} 0\n`;

describe('blocks that move between tiers', () => {
  it.each([
    ['a program', { policy: reads('offloadRate') }, /the policy reads offloadRate/],
    ['a tree', { policy: tree }, /the policy reads reloadRate/],
    [
      'a shadow',
      { shadows: [{ name: 'other', bundle: reads('reloadRate') }] },
      /shadow other reads reloadRate/,
    ],
  ])(
    '%s that reads them is refused before a server that does not report them',
    async (_what, config, problem) => {
      await using backend = await TestBackend.open(echo);
      await expect(gatewayOf([backend], config)).rejects.toMatchObject({
        code: 'TKV_CONFIG',
        field: 'policy',
        message: expect.stringMatching(problem),
      });
    },
  );

  it('decide where servers report them', async () => {
    await using a = await TestBackend.open(echo);
    await using b = await TestBackend.open(echo);
    for (const each of [a, b]) each.metrics = moved(0);
    await using gateway = await gatewayOf([a, b], { policy: reads('offloadRate') });
    const [busy] = gateway.pool.backends;
    let down = 0;
    const goesToB = async (): Promise<boolean> => {
      a.metrics = moved((down += 1000));
      const before = b.seen.length;
      await (await ask(gateway, 'p')).text();
      return b.seen.length > before;
    };
    // equal rates go to the first
    for (let i = 0; !(await goesToB()); i++) {
      if (i > 500) throw new Error('the rate is never seen');
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(busy.report?.offloadedBlocks).toBeGreaterThan(0);
  });

  it('a server that stops to report them gets nothing new, and its state says why', async () => {
    await using a = await TestBackend.open(echo);
    await using b = await TestBackend.open(echo);
    for (const each of [a, b]) each.metrics = moved(0);
    await using gateway = await gatewayOf([a, b], { policy: reads('offloadRate') });
    a.metrics = wellMetrics;
    const [first] = gateway.pool.backends;
    await until(() => !first.isUp, 'it is not used');
    expect(first.lastError).toContain('tierkv_store_blocks_total');
    for (let i = 0; i < 3; i++) expect((await ask(gateway, 'p')).status).toBe(200);
    expect(a.seen).toEqual([]);
    a.metrics = moved(0);
    await until(() => first.isUp, 'it is used again');
  });
});

describe('the deadline of a request', () => {
  it.each([
    ['x-stainless-timeout', 200],
    ['x-request-timeout-ms', 0],
  ])('%s: a stream that has begun may go on where OpenAI clients let it', async (name, status) => {
    // a machine that stands for longer than the deadline ends the request before its stream: then the deadline is longer
    for (let ms = 500; ; ms *= 2) {
      const ended = await statusOfStream(name, ms);
      if (ended === status || ms > 30_000) {
        expect(ended).toBe(status);
        break;
      }
    }
  });

  /** Of a stream that begins at once and ends after the deadline; 0 where it was cut, 1 where it had no end. */
  async function statusOfStream(name: string, deadlineMs: number): Promise<number> {
    await using backend = await TestBackend.open((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"choices":[{"text":"a"}]}\n\n');
      setTimeout(() => response.end('data: [DONE]\n\n'), 1.5 * deadlineMs);
    });
    await using gateway = await gatewayOf([backend]);
    const value = String(name.endsWith('ms') ? deadlineMs : deadlineMs / 1000);
    const whole = ask(gateway, 'p', { stream: true }, { [name]: value }).then(async (response) => {
      const text = await response.text();
      return text.includes('[DONE]') ? response.status : 1;
    });
    return await whole.catch(() => 0); // before both are closed
  }

  it.each([
    ['x-request-timeout-ms', '150', 150_000],
    ['x-stainless-timeout', '0.15', 150_000],
    ['x-request-timeout-ms', '900000000', 3_600_000_000],
    ['x-request-timeout-ms', 'soon', 3_600_000_000],
  ])('is what the client says in %s: %s, within the limit', async (name, value, expected) => {
    const log = join(folder, 'deadline.log');
    {
      await using backend = await TestBackend.open((_request, response, body) => {
        if (!body.includes('never')) response.end(answer('x'));
      });
      await using gateway = await gatewayOf([backend], { log });
      await (await ask(gateway, 'p', {}, { [name]: value })).text();
      if (expected < 1e9) {
        const late = await ask(gateway, 'never', {}, { [name]: value });
        expect([late.status, (await late.json()) as object]).toMatchObject([
          504,
          { error: { code: 'backend_timeout' } },
        ]);
        await until(() => gateway.openRequests === 0, 'nothing is open');
      }
    }
    const [arrival] = readFileSync(log, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"in":"arrive"'))
      .map((line) => JSON.parse(line) as { atUs: number; request: { deadlineUs: number } });
    const left = arrival.request.deadlineUs - arrival.atUs;
    expect(left).toBeLessThanOrEqual(expected);
    expect(left).toBeGreaterThan(0);
  });
});
