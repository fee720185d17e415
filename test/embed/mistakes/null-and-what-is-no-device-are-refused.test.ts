/** The names of options, as a call itself lists them for a name that it does not know. */

import { afterAll, beforeAll, expect, it } from 'vitest';
import { KVRuntime, kvLayout } from '../../../src/index.ts';
import { KVManager } from '../../../src/runtime/index.ts';

const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f16', blockTokens: 4 });
const config = { layout, model: 'm@1', secretKey: new Uint8Array(16), ddrBytes: 16 * layout.blockBytes };
const size = { capacityBytes: 1 << 16, landingBytes: 0 };
const managed = { unitBytes: [4096], pageBytes: 4096, hbm: size };

let kv: KVRuntime;
beforeAll(async () => {
  kv = await KVRuntime.open(config);
});
afterAll(() => kv.close());

const calls: readonly (readonly [name: string, call: (options: object) => unknown])[] = [
  [
    'KVRuntime.open',
    async (options) => {
      await (await KVRuntime.open({ ...config, ...options })).close();
    },
  ],
  [
    'begin',
    async (options) => {
      kv.release(await kv.begin([1, 2, 3], { tenant: 't', ...options }));
    },
  ],
  ['new KVManager', async (options) => new KVManager({ ...managed, ...options } as never)],
  ['kv.scheduler', async (options) => kv.scheduler(options as never)],
];

it.each(calls)('of %s, for each option', async (_, call) => {
  const unknown = (await Promise.resolve(call({ '\u2603': 1 })).catch((error: unknown) => error)) as Error;
  const names = /The names are (.*)\.$/.exec(unknown.message)?.[1].split(', ') ?? [];
  expect(names.length).toBeGreaterThan(3);
  for (const name of names) {
    await expect(call({ [name]: null }), name).rejects.toMatchObject({
      field: name,
      message: expect.stringContaining(`${name} is null. Give it a value, or leave it out`),
    });
  }
  await call(Object.fromEntries(names.filter((name) => !isRequired(name)).map((name) => [name, undefined])));
});

const required = new Set([...Object.keys(config), ...Object.keys(managed), 'tenant']);
const isRequired = (name: string): boolean => required.has(name);

it.each([
  ['is', {}],
  ['is', 'gpu'],
  ['gives', () => undefined],
  ['gives', async () => ({ queue: {} })],
])('a device that %s no device is refused: %o', async (how, device) => {
  const call = KVRuntime.open({ ...config, hbmBytes: 16 * layout.blockBytes, device: device as never });
  await expect(call).rejects.toMatchObject({
    code: 'TKV_CONFIG',
    field: 'device',
    message: expect.stringContaining(`must be a GPUDevice, or a function that gives one, and ${how} `),
  });
});
