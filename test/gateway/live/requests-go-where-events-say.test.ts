import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Packr } from 'msgpackr';
import { expect, it } from 'vitest';
import { Publisher } from 'zeromq';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { bundleOf, prefixBundle } from '../recordedRun.ts';
import { answer, ask, TestBackend } from './backends.ts';

const packr = new Packr({ useRecords: false, variableMapSize: true });

/** Publishes as vLLM's engine does: topic, number, and a batch of maps. */
class EnginePublisher implements AsyncDisposable {
  readonly #socket: Publisher = new Publisher();
  #number = 0n;

  async open(): Promise<string> {
    await this.#socket.bind('tcp://127.0.0.1:*');
    return this.#socket.lastEndpoint ?? '';
  }

  async send(...events: object[]): Promise<void> {
    const number = Buffer.alloc(8);
    number.writeBigUInt64BE(this.#number++);
    await this.#socket.send(['', number, packr.pack([Date.now() / 1000, events, 0])]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
  }
}

const tokens = Array.from({ length: 48 }, (_, i) => 100 + i);
const stored = {
  type: 'BlockStored',
  block_hashes: [11, 12, 13],
  parent_block_hash: null,
  token_ids: tokens,
  block_size: 16,
  lora_id: null,
  medium: 'GPU',
  lora_name: null,
};

it('a prompt goes to the server that says it has its blocks, and no more there once they are gone', async () => {
  await using publisher = new EnginePublisher();
  const events = await publisher.open();
  const plain = (_: unknown, response: { end(text: string): void }): void => response.end(answer('x'));
  await using a = await TestBackend.open(plain);
  await using b = await TestBackend.open(plain);
  const log = join(tmpdir(), `tierkv-gateway-events-${process.pid}.jsonl`);
  {
    await using gateway = await Gateway.open({
      backends: [
        { url: a.url, id: 'a' },
        { url: b.url, id: 'b', events },
      ],
      policy: bundleOf({
        routing: {
          type: 'parameterized',
          template: 'weighted',
          parameters: { scorers: { 'precise-prefix-cache': 1 } },
        },
      }),
      port: 0,
      pollMs: 20,
      log,
    });
    expect(gateway.notes).toEqual([]);
    const [, backend] = gateway.pool.backends;
    const ofB = async (): Promise<boolean> => {
      const before = b.seen.length;
      await (await ask(gateway, '', { prompt: [...tokens, 1, 2, 3] })).text();
      return b.seen.length > before;
    };
    /** Asks until it goes there, or no more there: an event takes its time. */
    const goesToB = async (wanted: boolean, again: () => Promise<void> = async () => {}): Promise<void> => {
      for (let i = 0; (await ofB()) !== wanted; i++) {
        if (i > 1000) throw new Error(`never ${wanted ? 'goes there' : 'leaves'}`);
        await again();
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    };
    // equal scores go to the lowest instance
    expect(await ofB()).toBe(false);
    // a subscription takes a while, so the publisher says it again
    await goesToB(true, () => publisher.send(stored));
    await publisher.send({ type: 'BlockRemoved', block_hashes: [11], medium: 'GPU' });
    await goesToB(false);
    await publisher.send(stored);
    await goesToB(true);
    await publisher.send({ type: 'AllBlocksCleared' });
    await goesToB(false);
    expect(backend.book?.counts.unusable).toBe(0);
  }
  const result = await decideAgain(log);
  expect(result.differences).toEqual([]);
  expect(result.routes).toBeGreaterThan(4);
  rmSync(log);
});

it('blocks that are told under salts alone, to a gateway without tenants: it says once what to do', async () => {
  await using publisher = new EnginePublisher();
  const events = await publisher.open();
  await using a = await TestBackend.open((_, response) => void response.end(answer('x')));
  const said: string[] = [];
  await using gateway = await Gateway.open({
    backends: [{ url: a.url, events }],
    policy: prefixBundle,
    port: 0,
    noted: (note) => said.push(note),
  });
  const asks = async (body: object): Promise<void> => {
    await (await ask(gateway, '', { prompt: [...tokens, 1], ...body })).text();
  };
  const first = { ...stored, block_hashes: [11], token_ids: tokens.slice(0, 16), extra_keys: [['tenant-a']] };
  const [backend] = gateway.pool.backends;
  for (let i = 0; (backend.book?.counts.blocks ?? 0) === 0; i++) {
    if (i > 1000) throw new Error('never told');
    await publisher.send(first);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  // as vLLM has it, blocks further down a chain are without the salt
  const before = backend.book?.counts.blocks ?? 0;
  await publisher.send({
    ...stored,
    block_hashes: [12],
    parent_block_hash: 11,
    token_ids: tokens.slice(16, 32),
  });
  for (let i = 0; (backend.book?.counts.blocks ?? 0) === before; i++) {
    if (i > 1000) throw new Error('never told');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await asks({ cache_salt: 'tenant-a' });
  expect([said, gateway.notes]).toEqual([[], []]);
  for (let i = 0; i < 3; i++) await asks({});
  expect(said).toEqual([expect.stringContaining('Give the API keys of the tenants (tenants)')]);
  expect(gateway.notes).toEqual(said);
  await expect(
    Gateway.open({ backends: [{ url: a.url }], port: 0, noted: 'x' as never }),
  ).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'noted' });
});

it('an address of events that cannot be one is refused', async () => {
  await using a = await TestBackend.open(() => {});
  await expect(
    Gateway.open({ backends: [{ url: a.url, events: 'nonsense' }], port: 0 }),
  ).rejects.toMatchObject({
    code: 'TKV_CONFIG',
  });
});
