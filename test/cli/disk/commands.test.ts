import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { editFile } from '../../backends/file/scratch.ts';
import { main } from '../../command.ts';
import { resultOf } from '../../resultSchema.ts';

const tierkv = (...args: string[]) =>
  spawnSync(process.execPath, [main, 'disk', ...args], { encoding: 'utf8', timeout: 120_000 });

const shape = poolShape(64, 16384, [16384]);
const identity = {
  model: 'llama@1',
  layout: 'kv-layout layers=2',
  secretKey: 'abcd',
  extras: '[]',
  epoch: 2,
};
const work = mkdtempSync(join(tmpdir(), 'tierkv-disk-'));
const dir = join(work, 'store');

beforeAll(async () => {
  mkdirSync(dir);
  const store = await FileStore.open(dir, shape, { restart: 'warm', identity });
  const items = [4, 9, 2].map((slot) => ({ ...patternItem(shape, slot, 0, 7), tokens: 16 }));
  for (const item of items) await store.write([item]);
  await store[Symbol.asyncDispose]();
});
afterAll(() => rmSync(work, { recursive: true }));

describe('tierkv disk', () => {
  it('stat says what the store is, as a table and as JSON', () => {
    const json = join(work, 'stat.json');
    const { stdout, status } = tierkv('stat', dir, '--json', json);
    expect(status).toBe(0);
    for (const part of ['llama@1', 'closed cleanly', '0 regions, 0 bytes']) expect(stdout).toContain(part);
    expect(resultOf('disk stat', readFileSync(json, 'utf8'))).toMatchObject({
      model: 'llama@1',
      epoch: 2,
      records: 3,
      payloadBytes: 3 * 16384,
      capacityBytes: 64 * 16384,
      closed: true,
      blockBytes: [16384],
    });
  });

  it('fsck exits with 0 for a healthy store and with 1 for a damaged one, naming slot and reason', () => {
    expect(tierkv('fsck', dir)).toMatchObject({ status: 0, stderr: '' });
    const at = 8192 + 9 * 20480 + 4096 + 5;
    editFile(join(dir, 'tierkv.blocks'), at, 1, (bytes) => void (bytes[0] ^= 1));
    const { stdout, status } = tierkv('fsck', dir);
    expect(stdout).toMatch(/fault {5}slot 9: the bytes do not have their digest\nleftovers 0\nfaults 1\n$/);
    expect(status).toBe(1);
    editFile(join(dir, 'tierkv.blocks'), at, 1, (bytes) => void (bytes[0] ^= 1));
  });

  it('export writes records in the order of their use, and their bytes on request', () => {
    const payloads = join(work, 'payloads');
    mkdirSync(payloads);
    const { stdout, status } = tierkv('export', dir, '--payloads', payloads);
    expect(status).toBe(0);
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map(({ slot, generation, tokens }) => [slot, generation, tokens])).toEqual([
      [4, 7, 16],
      [9, 7, 16],
      [2, 7, 16],
    ]);
    for (const { slot, file } of lines) {
      const bytes = Uint8Array.from(readFileSync(join(payloads, file)));
      expect(mismatchedWords({ ...patternItem(shape, slot, 0, 7), bytes })).toBe(0);
    }
    const before = readFileSync(join(dir, 'tierkv.blocks'));
    for (const option of ['--out', '--payloads']) {
      const target = option === '--out' ? join(dir, 'tierkv.blocks') : dir;
      const { status, stderr } = tierkv('export', dir, option, target);
      expect({ status, stderr }).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(`${option} is `),
      });
    }
    expect(readFileSync(join(dir, 'tierkv.blocks')).equals(before)).toBe(true);
    const out = join(work, 'out.jsonl');
    expect(tierkv('export', dir, '--out', out).stdout).toBe('');
    expect(readFileSync(out, 'utf8').trim().split('\n')).toHaveLength(3);
  });

  it('refuses a directory that a process owns, and says which', async () => {
    const live = join(work, 'live');
    mkdirSync(live);
    const script = `
      const { FileStore } = await import('./src/backends/file/fileStore.ts');
      const { poolShape } = await import('./src/runtime/tables/slotPool.ts');
      await FileStore.open(${JSON.stringify(live)}, poolShape(4, 8192, [8192]), { restart: 'warm' });
      console.log('open');
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    for (const command of ['stat', 'fsck', 'export']) {
      const { status, stderr, stdout } = tierkv(command, live);
      expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
      expect(stderr).toMatch(new RegExp(`belongs to process ${child.pid}\\..*\\[TKV_LOCKED\\]\n$`));
    }
    child.kill('SIGKILL');
    await once(child, 'close');
    const names = readdirSync(live);
    expect(tierkv('fsck', live)).toMatchObject({ status: 0 });
    expect(readdirSync(live)).toEqual(names); // the dead owner's claim is not ours to remove
  });

  it('a directory without a store, or none at all, is one line and exit code 2', () => {
    const empty = join(work, 'empty');
    mkdirSync(empty);
    for (const [name, file] of [
      ['begun', 'tierkv.index'],
      ['foreign', 'tierkv.blocks'],
    ] as const) {
      mkdirSync(join(work, name));
      writeFileSync(join(work, name, file), file === 'tierkv.index' ? '' : 'something else');
    }
    expect(tierkv('stat', empty)).toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/holds no tierkv\.blocks\. .* \[TKV_IO\]\n$/),
    });
    for (const [name, says] of [
      ['absent', /ENOENT\. Name the directory of a disk tier\. /],
      [
        'begun',
        /holds tierkv\.index, and no records: tierkv\.blocks is missing\. The next start begins anew/,
      ],
      ['foreign', /is not a tierkv file\. Name the directory of a disk tier, or give the file back/],
    ] as const) {
      const { status, stderr } = tierkv('fsck', join(work, name));
      expect({ name, status, stderr }).toMatchObject({ status: 2, stderr: expect.stringMatching(says) });
    }
    expect(tierkv('export', dir, '--payloads', join(work, 'absent'))).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--payloads'),
    });
  });
});
