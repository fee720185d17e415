import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, describe, expect, it } from 'vitest';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import { LiveServer, model } from '../../examples/server/liveServer.ts';
import { fleetRun, prefixAware } from '../campaign.ts';
import { gatewayOf, until } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-client-'));
afterAll(() => rmSync(folder, { recursive: true }));

const small = { hbmBytes: 60 * 24_576, ddrBytes: 0 };
const messages = [{ role: 'user' as const, content: 'Tell me of the sea, and of the ships on it.' }];
const asked = { model, messages, max_tokens: 12, temperature: 0 };

describe('example servers behind a gateway', () => {
  it('answers, streams, errors, models and cancellation are those of a server alone', async () => {
    await using a = await LiveServer.start(small);
    await using b = await LiveServer.start(small);
    const log = join(folder, 'client.log');
    {
      await using gateway = await gatewayOf([a, b], { policy: prefixAware, log });
      const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'any', maxRetries: 0 });
      const alone = a.client();
      const expected = (await alone.chat.completions.create(asked)).choices[0].message.content;
      for (let i = 0; i < 3; i++) {
        expect((await client.chat.completions.create(asked)).choices[0].message.content).toBe(expected);
      }
      let streamed = '';
      let usage: unknown;
      const options = { stream: true as const, stream_options: { include_usage: true } };
      for await (const chunk of await client.chat.completions.create({ ...asked, ...options })) {
        streamed += chunk.choices[0]?.delta.content ?? '';
        usage = chunk.usage ?? usage;
      }
      expect(streamed).toBe(expected);
      expect(usage).toMatchObject({ completion_tokens: 12 });
      expect((await client.models.list()).data.map(({ id }) => id)).toEqual([model]);
      await expect(client.chat.completions.create({ ...asked, max_tokens: -1 })).rejects.toMatchObject({
        status: 400,
      });
      await expect(client.chat.completions.create({ ...asked, model: 'other' })).rejects.toMatchObject({
        status: 404,
      });
      const long = await client.chat.completions.create({ ...asked, max_tokens: 400, stream: true });
      for await (const chunk of long) if (chunk.choices.length > 0) break;
      await until(() => gateway.openRequests === 0, 'the stream that was left has ended');
      await a.idle();
      await b.idle();
      expect(gateway.counts).toMatchObject({
        completed: 4,
        backendErrors: 1,
        unroutable: 1,
        clientsLeft: 1,
        failed: 0,
      });
    }
    expect((await decideAgain(log)).differences).toEqual([]);
  });

  it('a slice of the campaign: right answers, nothing lost, a killed and a drained server, logs decided again', async () => {
    const said: string[] = [];
    const report = await fleetRun({
      requests: 36,
      clients: 8,
      seed: 3,
      hbmMib: [2, 2, 3],
      groups: 5,
      // servers that are never killed share this process, which starts them in a fraction of the time
      start: (mib) =>
        LiveServer.start({ hbmBytes: mib * 2 ** 20, ddrBytes: 0, maxSequences: 32, maxWaiting: 4096 }),
      say: (line) => said.push(line),
    });
    expect(report, said.join('\n')).toMatchObject({ wrong: 0, lost: 0, differences: 0 });
    expect(report.decisions).toBeGreaterThan(190);
    const { roundRobin, prefixAware: aware } = report.hitRates;
    expect(aware.measured).toBeGreaterThan(roundRobin.measured);
    expect(aware.predicted).toBeGreaterThan(roundRobin.predicted);
  }, 1_200_000);
});
