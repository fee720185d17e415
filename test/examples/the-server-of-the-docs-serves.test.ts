/**
 * The server in docs/guide/embedding.md type-checks against the public API, and runs: no client gets a token that
 * KV of others made.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KVRuntime, type KVRuntimeConfig, kvLayout } from '../../src/index.ts';
import { sharedDevice } from '../sharedDevice.ts';
import { nextToken, ReadingModel } from './readingModel.ts';
import { doors, loadServer, type Server, type ServerClass, serverText } from './serverOfDocs.ts';

const root = join(import.meta.dirname, '..', '..');
const dir = mkdtempSync(join(tmpdir(), 'tierkv-server-'));
const file = join(dir, 'server.mts');
const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 32, dtype: 'f16', blockTokens: 16 });

let ServerOfDocs: ServerClass;

beforeAll(async () => {
  writeFileSync(file, serverText());
  ServerOfDocs = await loadServer();
});
afterAll(() => rmSync(dir, { recursive: true }));

const blocks = (count: number): number => count * layout.blockBytes;
const open = (config: Partial<KVRuntimeConfig>): Promise<KVRuntime> =>
  KVRuntime.open({
    layout,
    model: 'reading@1',
    secretKey: new Uint8Array(32).fill(5),
    hbmBytes: blocks(16),
    ddrBytes: blocks(64),
    device: sharedDevice,
    ...config,
  });

/** What a right server answers. */
function answer(prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(nextToken(tokens));
  return tokens.slice(prompt.length);
}

async function ask(server: Server, prompt: number[], maxTokens: number, tenant = 'a'): Promise<number[]> {
  const given: number[] = [];
  const signal = new AbortController().signal;
  await server.serve({ prompt, tenant, maxTokens, signal, onToken: (token) => given.push(token) });
  return given;
}

const promptOf = (length: number, from: number): number[] => Array.from({ length }, (_, i) => from + i);

it('type-checks against the public doors', () => {
  const paths = Object.fromEntries(Object.entries(doors).map(([door, path]) => [door, [join(root, path)]]));
  const wrong = join(dir, 'wrong.mts');
  writeFileSync(wrong, serverText().replace('wait: true', 'weight: true'));
  const config = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      paths,
      types: ['node'],
      typeRoots: [realpathSync(join(root, 'node_modules', '@types'))],
    },
    include: [],
    files: [file, wrong, join(root, 'src', 'webgpu-ambient.d.ts')],
  };
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify(config));
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { stdout } = spawnSync(process.execPath, [tsc, '-p', dir, '--pretty', 'false'], { encoding: 'utf8' });
  const found = stdout.split('\n').filter((line) => /error TS/.test(line));
  expect(found.filter((line) => !line.includes('wrong.mts'))).toEqual([]);
  expect(found.join('\n'), 'the check sees the types of the runtime').toContain("'weight' does not exist");
});

describe('the server', () => {
  it('answers more clients than memory has room for, and finds the next turn of a conversation', async () => {
    await using kv = await open({});
    const model = new ReadingModel(layout, () => kv.device);
    const server = new ServerOfDocs(kv, model, layout.blockTokens);
    const clients = Array.from({ length: 12 }, (_, i) => ({
      prompt: promptOf(20 + 7 * i, 100 * (i % 3)),
      count: 20 + i,
      tenant: `tenant ${i % 2}`,
    }));
    const answers = await Promise.all(
      clients.map(({ prompt, count, tenant }) => ask(server, prompt, count, tenant)),
    );
    expect(answers).toEqual(clients.map(({ prompt, count }) => answer(prompt, count)));
    const [{ prompt, count, tenant }] = clients;
    const next = [...prompt, ...answers[0], 1, 2, 3];
    model.prefilled = 0;
    expect(await ask(server, next, 3, tenant)).toEqual(answer(next, 3));
    expect(model.prefilled, 'the last token of the answer and the new ones').toBe(4);
    expect(count).toBe(20);
    expect([kv.manager.inspect.openSequences, kv.room.waiting]).toEqual([0, 0]);
    kv.manager.checkIntegrity();
  });

  it('goes on after a lost device, and lets a client leave', async () => {
    await using kv = await open({});
    const model = new ReadingModel(layout, () => kv.device);
    const server = new ServerOfDocs(kv, model, layout.blockTokens);
    let steps = 0;
    const leaves = new AbortController();
    model.beforeDecode = () => {
      steps++;
      if (steps === 5) kv.device.destroy();
      if (steps === 12) leaves.abort();
    };
    const gone = server.serve({
      prompt: promptOf(30, 9000),
      tenant: 'a',
      maxTokens: 200,
      signal: leaves.signal,
      onToken: () => {},
    });
    const stays = ask(server, promptOf(40, 0), 30);
    await expect(gone).rejects.toMatchObject({ name: 'AbortError' });
    expect(await stays).toEqual(answer(promptOf(40, 0), 30));
    expect(kv.devicesLost).toBe(1);
    await kv.idle();
    expect(kv.manager.inspect.openSequences).toBe(0);
    kv.manager.checkIntegrity();
  });

  it('refuses what never fits', async () => {
    await using kv = await open({});
    const server = new ServerOfDocs(kv, new ReadingModel(layout, () => kv.device), layout.blockTokens);
    await expect(ask(server, promptOf(200, 0), 100)).rejects.toThrow('300 tokens are more than 256');
  });
});
