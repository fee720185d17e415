/** The two legs of docs/guide/cluster.md, as the page has them, between two runtimes. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import type { KVRuntime } from '../../src/index.ts';
import type { HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import type { HandoffSender } from '../../src/serve/handoff/sender.ts';
import { ask, layout, prompt, promptBlocks, tenant } from '../embed/liveRuntime.ts';
import { Pair } from './pair.ts';

const root = join(import.meta.dirname, '..', '..');
const dir = mkdtempSync(join(tmpdir(), 'tierkv-legs-'));
afterAll(() => rmSync(dir, { recursive: true }));

type Run = (kv: KVRuntime, tokens: Uint32Array) => Promise<void>;
interface Legs {
  prefillLeg(
    kv: KVRuntime,
    sender: HandoffSender,
    tokens: Uint32Array,
    tenant: string,
    respond: (answer: { kv_transfer_params: object }) => void,
    compute: Run,
  ): Promise<void>;
  decodeLeg(
    kv: KVRuntime,
    receiver: HandoffReceiver,
    tokens: Uint32Array,
    tenant: string,
    body: { readonly kv_transfer_params?: unknown },
    generate: Run,
  ): Promise<void>;
}

async function legsOfDocs(): Promise<Legs> {
  const page = readFileSync(join(root, 'docs', 'guide', 'cluster.md'), 'utf8');
  const code = /```ts\n(import type \{ KVRuntime[\s\S]*?)```/.exec(page)?.[1];
  if (code === undefined) throw new Error('docs/guide/cluster.md has no legs');
  const doors = { tierkv: 'src/index.ts', 'tierkv/serve': 'src/serve/index.ts' };
  const file = join(dir, 'legs.mts');
  const own = code.replace(/'(tierkv(?:\/\w+)?)'/g, (_, door: keyof typeof doors) => {
    return `'${pathToFileURL(join(root, doors[door])).href}'`;
  });
  writeFileSync(file, own);
  return (await import(pathToFileURL(file).href)) as Legs;
}

it('a prompt goes over, and one that fails is given up', async () => {
  const legs = await legsOfDocs();
  await using pair = await Pair.open();
  const answered = Promise.withResolvers<{ kv_transfer_params: object }>();
  const computing = legs.prefillLeg(
    pair.prefill,
    pair.sender,
    prompt(1),
    tenant,
    answered.resolve,
    async (kv) => {
      await ask(kv, 1);
    },
  );
  let found: unknown;
  const body = JSON.parse(JSON.stringify(await answered.promise));
  await legs.decodeLeg(pair.decode, pair.receiver, prompt(1), tenant, body, async (kv) => {
    found = await ask(kv, 1);
  });
  await computing;
  expect(found).toEqual({ cachedTokens: promptBlocks * layout.blockTokens, right: true });
  const broken = new Error('the kernel failed');
  const failing = legs.prefillLeg(
    pair.prefill,
    pair.sender,
    prompt(2),
    tenant,
    () => {},
    () => {
      throw broken;
    },
  );
  await expect(failing).rejects.toBe(broken);
  expect(pair.sender.counts).toMatchObject({ handedOff: 1, withdrawn: 1 });
});
