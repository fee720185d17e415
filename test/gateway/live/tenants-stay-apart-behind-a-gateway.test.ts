/** Tenants of a gateway are tenants of the server behind it. */

import { readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { serverOptions } from '../../../examples/server/api/index.ts';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { blockBytes, LiveServer, model } from '../../examples/server/liveServer.ts';
import { ask, echo, gatewayOf, TestBackend } from './backends.ts';

const tenants = new Map([
  ['key-a', 'tenant-a'],
  ['key-b', 'tenant-b'],
]);
const prompt =
  'What one tenant has asked must not be found by another one, however often it is asked. '.repeat(2);

/** Tokens that are found of a prompt asked by one tenant, by the same one again, and by another. */
async function found(tenantHeader: string | undefined): Promise<number[]> {
  await using server = await LiveServer.start({ hbmBytes: 64 * blockBytes, ddrBytes: 0, tenantHeader });
  await using gateway = await gatewayOf([server], { tenants });
  const cached: number[] = [];
  for (const key of ['key-a', 'key-a', 'key-b']) {
    const response = await fetch(`${gateway.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, prompt, max_tokens: 1, temperature: 0 }),
    });
    const { usage } = (await response.json()) as {
      usage: { prompt_tokens_details: { cached_tokens: number } };
    };
    cached.push(usage.prompt_tokens_details.cached_tokens);
  }
  if (tenantHeader !== undefined) {
    const alone = await server.post('/v1/completions', JSON.stringify({ model, prompt, max_tokens: 1 }));
    expect(alone.status, 'who comes past the gateway has no tenant').toBe(401);
  }
  return cached;
}

it('where the server is told their header', async () => {
  const [first, again, other] = await found('x-tenant-id');
  expect([first, again > 0, other]).toEqual([0, true, 0]);
});

it('and share where it is not: so the check above can fail', async () => {
  const [, again, other] = await found(undefined);
  expect(other).toBe(again);
  expect(other).toBeGreaterThan(0);
});

it('prompts of two share no block in the trace where servers are said to keep them apart', async () => {
  await using server = await TestBackend.open(echo);
  const trace = join(tmpdir(), `tierkv-tenants-${process.pid}.jsonl`);
  const keys: string[][] = [];
  for (const tenantsApart of [true, undefined]) {
    rmSync(trace, { force: true });
    {
      await using gateway = await gatewayOf([server], {
        tenants,
        trace,
        ...(tenantsApart === undefined ? {} : { tenantsApart }),
      });
      expect(gateway.notes.some((note) => note.includes('tenantsApart'))).toBe(tenantsApart === undefined);
      for (const key of ['key-a', 'key-a', 'key-b'])
        await ask(gateway, prompt, {}, { authorization: `Bearer ${key}` });
    }
    const lines = readFileSync(trace, 'utf8').trim().split('\n');
    keys.push(lines.map((line) => String((JSON.parse(line) as { block_keys: string[] }).block_keys[0])));
  }
  rmSync(trace);
  const shared = keys.map(([first, again, other]) => [first === again, first === other]);
  expect(shared).toEqual([
    [true, false],
    [true, true],
  ]);
  await expect(gatewayOf([server], { tenantsApart: true })).rejects.toMatchObject({ field: 'tenantsApart' });
});

it.each(['two words', 'größe', 'x'.repeat(129)])(
  'a tenant that no header can name is refused: %s',
  async (name) => {
    const backends = [{ url: 'http://127.0.0.1:9' }];
    const opening = Gateway.open({ backends, port: 0, tenants: new Map([['key', name]]) });
    await expect(opening).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'tenants' });
    expect(() => serverOptions(['--tenant-header', 'x tenant'], {})).toThrow(/no header/);
  },
);
