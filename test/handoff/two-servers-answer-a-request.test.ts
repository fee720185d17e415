import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serverOptions } from '../../examples/server/api/index.ts';
import type { ServerOptions } from '../../examples/server/api/options.ts';
import { decideAgain } from '../../src/serve/gateway/decisionLog.ts';
import { Gateway } from '../../src/serve/gateway/gateway.ts';
import { LiveServer, model } from '../examples/server/liveServer.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';
import { isReplayed } from './replayed.ts';
import { prefillerHeader, Sidecar } from './sidecar.ts';

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-two-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const secretFile = join(scratch, 'secret.key');
writeFileSync(secretFile, new Uint8Array(32).fill(3));

const small = ['--hbm-mib', '16', '--ddr-mib', '16'];

/** As the command line gives them. */
const options = (...args: string[]): Partial<ServerOptions> => {
  const { port: _, ...rest } = serverOptions(
    ['--operator-port', '0', '--secret-file', secretFile, ...small, ...args],
    {},
  );
  return { ...rest, port: 0 };
};
const hostOf = (server: LiveServer): string => new URL(server.url).host;
const prompt = 'Two servers answer this: one of them reads it, and the other one goes on from there. '.repeat(
  2,
);

interface Answered {
  readonly choices: readonly { readonly text: string; readonly finish_reason: string }[];
  readonly usage: {
    readonly prompt_tokens_details: { readonly cached_tokens_by_tier: Readonly<Record<string, number>> };
    readonly prompt_tokens: number;
  };
  readonly kv_transfer_params?: { readonly remote_block_ids: readonly string[] } | null;
}

async function ask(url: string, body: object, headers: Record<string, string> = {}): Promise<Answered> {
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model, max_tokens: 8, temperature: 0, ignore_eos: true, ...body }),
  });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Answered;
}

/** Tokens that lay in a tier. A busy machine may have computed some of them before they were loaded: `cached_tokens` is less then. */
const foundIn = ({ usage }: Answered): number =>
  Object.values(usage.prompt_tokens_details.cached_tokens_by_tier).reduce((sum, tokens) => sum + tokens, 0);

const blocksOf = ({ usage }: Answered): number => Math.floor((usage.prompt_tokens - 1) / 16);

describe('a prefill server and a decode server', () => {
  const logs = ['prefill', 'decode'].map((name) => join(scratch, `${name}.log`));
  let single: LiveServer;
  let prefill: LiveServer;
  let decode: LiveServer;
  let to: Record<string, string>;
  beforeAll(async () => {
    single = await LiveServer.start({ hbmBytes: 2 ** 24, ddrBytes: 2 ** 24 });
    prefill = await LiveServer.start({
      ...options('--role', 'prefill', '--handoff-port', '0'),
      log: logs[0],
    });
    decode = await LiveServer.start({ ...options('--role', 'decode'), log: logs[1] });
    to = { [prefillerHeader]: hostOf(prefill) };
  }, 600_000);
  afterAll(async () => {
    for (const server of [single, prefill, decode]) await server[Symbol.asyncDispose]();
  });

  it('say what one server says', async () => {
    await using proxy = await Sidecar.start(decode.url);
    const alone = await ask(single.url, { prompt });
    const together = await ask(proxy.url, { prompt }, to);
    expect(together.choices).toEqual(alone.choices);
    expect(foundIn(together)).toBe(16 * blocksOf(together));
    expect(decode.serving.handoffs?.describe()).toMatchObject({
      received: { taken: 1, blocks: blocksOf(alone) },
    });
    expect(proxy.counts).toEqual({ handedOff: 1, alone: 0 });
  });

  it('say it behind a gateway that knows their roles, whose log is decided again', async () => {
    const log = join(scratch, 'gateway.log');
    const body = { prompt: prompt.replace('Two', 'Ten') };
    const alone = await ask(single.url, body);
    {
      await using gateway = await Gateway.open({
        backends: [
          { url: prefill.url, id: 'p', role: 'prefill' },
          { url: decode.url, id: 'd', role: 'decode' },
        ],
        port: 0,
        log,
      });
      const together = await ask(gateway.url, body);
      expect(together.choices).toEqual(alone.choices);
      expect(foundIn(together)).toBe(16 * blocksOf(together));
      expect(gateway.counts).toMatchObject({ prefills: 1, prefillsFailed: 0, completed: 1 });
    }
    expect((await decideAgain(log)).differences).toEqual([]);
  });

  it('answer what asks for several answers and for log probabilities', async () => {
    await using proxy = await Sidecar.start(decode.url);
    const body = { prompt: prompt.replace('Two', 'Few'), n: 2, logprobs: 1 };
    const together = await ask(proxy.url, body, to);
    expect(together.choices).toEqual((await ask(single.url, body)).choices);
    expect(together.choices).toHaveLength(2);
    expect(proxy.counts).toEqual({ handedOff: 1, alone: 0 });
  });

  it('stream a chat to the official client', async () => {
    await using proxy = await Sidecar.start(decode.url);
    const client = (url: string): OpenAI =>
      new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, defaultHeaders: to });
    const chat = {
      model,
      messages: [{ role: 'user' as const, content: prompt }],
      temperature: 0,
      max_tokens: 4,
    };
    const said = await client(single.url).chat.completions.create(chat);
    let streamed = '';
    for await (const { choices } of await client(proxy.url).chat.completions.create({
      ...chat,
      stream: true,
    })) {
      streamed += choices[0]?.delta.content ?? '';
    }
    expect(streamed).toBe(said.choices[0].message.content);
    expect(proxy.counts).toEqual({ handedOff: 1, alone: 0 });
  });

  it('compute a prompt whose reference is of another one', async () => {
    let kept: unknown;
    await using mixing = await Sidecar.start(decode.url, {
      changed: (params) => {
        const before = kept ?? params;
        kept = params;
        return before;
      },
    });
    await ask(mixing.url, { prompt: prompt.replace('Two', 'Six') }, to);
    const third = prompt.replace('Two', 'Ten');
    const mixed = await ask(mixing.url, { prompt: third }, to);
    expect(mixed.choices).toEqual((await ask(single.url, { prompt: third })).choices);
    expect(decode.serving.handoffs?.describe()).toMatchObject({ received: { stale: 1 } });
    expect(decode.lines.some((line) => line.includes('another prompt, model or tenant'))).toBe(true);
  });

  it('refuse legs that are not theirs, and values that are wrong', async () => {
    for (const [url, params] of [
      [prefill.url, { do_remote_prefill: true }],
      [decode.url, { do_remote_decode: true }],
      [decode.url, 'x'],
      [single.url, { do_remote_prefill: true }],
    ] as const) {
      const answer = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model, prompt, kv_transfer_params: params }),
      });
      expect(answer.status).toBe(400);
      expect(await answer.json()).toMatchObject({ error: { param: 'kv_transfer_params' } });
    }
  });

  it('are replayed exactly, hand-offs included', async () => {
    for (const server of [prefill, decode]) {
      await server.idle();
      await server.serving.stop();
    }
    for (const path of logs) {
      expect(isReplayed(path), `${path}: the same decisions, byte for byte`).toBe(true);
    }
    // of the two first tests, at least
    expect(readFileSync(logs[1], 'utf8').match(/ found /g)?.length).toBeGreaterThan(8);
  });

  it('can be both, each for the other one', async () => {
    const both = options('--role', 'both', '--handoff-port', '0');
    await using one = await LiveServer.start(both);
    await using other = await LiveServer.start(both);
    for (const [from, to, text] of [
      [one, other, prompt.replace('Two', 'Ten')],
      [other, one, prompt.replace('Two', 'Six')],
    ] as const) {
      await using proxy = await Sidecar.start(to.url);
      const together = await ask(proxy.url, { prompt: text }, { [prefillerHeader]: hostOf(from) });
      expect(together.choices).toEqual((await ask(single.url, { prompt: text })).choices);
      expect(foundIn(together)).toBe(16 * blocksOf(together));
      expect(proxy.counts).toEqual({ handedOff: 1, alone: 0 });
    }
    for (const { serving } of [one, other]) {
      expect(serving.handoffs?.describe()).toMatchObject({
        role: 'both',
        sent: { handedOff: 1 },
        received: { taken: 1 },
      });
    }
  }, 600_000);

  it.skipIf(!hasRedis)(
    'hand blocks off by a tier that they share',
    async () => {
      const redis = await RedisServer.start();
      try {
        const remote = ['--remote', redis.url];
        await using one = await LiveServer.start(options('--role', 'prefill', ...remote));
        await using other = await LiveServer.start(options('--role', 'decode', ...remote));
        await using proxy = await Sidecar.start(other.url);
        const through = { [prefillerHeader]: hostOf(one) };
        const together = await ask(proxy.url, { prompt }, through);
        expect(together.choices).toEqual((await ask(single.url, { prompt })).choices);
        expect(foundIn(together)).toBe(16 * blocksOf(together));
        expect(one.serving.handoffs?.describe()).toMatchObject({
          sent: { where: 'shared tier', handedOff: 1, heldBytes: 0, blocks: blocksOf(together) },
        });
        // with the server gone, the prompt is computed
        await redis.kill();
        const later = prompt.replace('Two', 'Ten');
        const computed = await ask(proxy.url, { prompt: later }, through);
        expect(computed.choices).toEqual((await ask(single.url, { prompt: later })).choices);
      } finally {
        await redis.kill();
      }
    },
    600_000,
  );

  it('refuse options that do not fit each other, by name', () => {
    const field = (...args: string[]): unknown => {
      try {
        serverOptions(args, {});
        return 'taken';
      } catch (error) {
        return (error as { field?: string }).field;
      }
    };
    expect(field('--role', 'prefill', '--handoff-port', '0')).toBe('--role');
    expect(field('--role', 'prefill', '--secret-file', secretFile)).toBe('--handoff-port');
    expect(field('--role', 'both', '--secret-file', secretFile)).toBe('--handoff-port');
    expect(field('--role', 'decoder', '--secret-file', secretFile)).toBe('--role');
    expect(field('--role', 'decode', '--secret-file', secretFile, '--handoff-port', '1')).toBe(
      '--handoff-port',
    );
    expect(field('--remote', 'redis://x')).toBe('--remote');
    expect(field('--remote-mib', '1')).toBe('--remote-mib');
    expect(field('--handoff-answer', 'early')).toBe('--handoff-answer');
    expect(field('--role', 'decode', '--secret-file', secretFile)).toBe('taken');
  });

  it('are not started with a secret that is too short or missing', async () => {
    const start = (path: string): Promise<LiveServer> =>
      LiveServer.start({ ...options('--role', 'decode'), secretFile: path });
    await expect(start(join(scratch, 'none.key'))).rejects.toMatchObject({ field: '--secret-file' });
    const short = join(scratch, 'short.key');
    writeFileSync(short, 'short');
    await expect(start(short)).rejects.toMatchObject({ field: '--secret-file' });
  });
});
