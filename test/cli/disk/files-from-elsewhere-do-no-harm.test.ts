/**
 * A disk tier from elsewhere is data: it commands no terminal, leads out of no directory, and cannot be a
 * fault of ours.
 */

import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { digestBytes } from '../../../src/runtime/digest.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { patternItem } from '../../../src/testing/index.ts';
import { editFile } from '../../backends/file/scratch.ts';
import { main } from '../../command.ts';

const disk = (...args: string[]) =>
  spawnSync(process.execPath, [main, 'disk', ...args], { encoding: 'utf8', timeout: 120_000 });

const shape = poolShape(16, 16384, [16384]);
const work = mkdtempSync(join(tmpdir(), 'tierkv-harm-'));
const dir = join(work, 'store');
const model = 'llama\u001b]0;owned\u0007\u001b[2J\u009b31m\n\u202etxt';

beforeAll(async () => {
  mkdirSync(dir);
  const identity = { model, layout: 'l', secretKey: 'ab', extras: '[]', epoch: 0 };
  const store = await FileStore.open(dir, shape, { restart: 'warm', identity });
  await store.write([1, 2, 3].map((slot) => patternItem(shape, slot, 0, 1)));
  await store[Symbol.asyncDispose]();
});
afterAll(() => rmSync(work, { recursive: true }));

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
const harmful = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;

describe('texts out of files', () => {
  it('are printed without terminal escapes by stat and fsck, and whole in the JSON', () => {
    const unfinished = join(dir, 'tierkv.\u001b[31m.new');
    writeFileSync(unfinished, '');
    const json = join(work, 'stat.json');
    for (const { stdout, stderr } of [disk('stat', dir, '--json', json), disk('fsck', dir)]) {
      expect(stdout).not.toMatch(harmful);
      expect(stderr).toBe('');
    }
    rmSync(unfinished);
    expect(disk('stat', dir).stdout).toContain('llama\\u{1b}]0;owned\\u{7}');
    expect(JSON.parse(readFileSync(json, 'utf8')).result.model).toBe(model);
  });

  it('are printed without terminal escapes in the error that a start of another model is', async () => {
    const other = { model: 'other', layout: 'l', secretKey: 'ab', extras: '[]', epoch: 0 };
    const error = await FileStore.open(dir, shape, { restart: 'warm', identity: other }).catch((e) => e);
    expect(error).toMatchObject({ code: 'TKV_MISMATCH', field: 'model' });
    expect(error.message).not.toMatch(harmful);
    expect(error.message).not.toContain('\n');
  });
});

describe('exported payloads', () => {
  it('can be read by their owner alone, whatever the umask, also where an older file has the name', () => {
    const payloads = join(work, 'private');
    mkdirSync(payloads);
    for (let round = 0; round < 2; round++) {
      const run = spawnSync('sh', [
        '-c',
        `umask 0; "$0" "$@"`,
        process.execPath,
        main,
        'disk',
        'export',
        dir,
        '--payloads',
        payloads,
      ]);
      expect(run.status).toBe(0);
      const names = readdirSync(payloads);
      expect(names.length).toBe(3);
      for (const name of names) {
        expect(statSync(join(payloads, name)).mode & 0o777).toBe(0o600);
        chmodSync(join(payloads, name), 0o644);
      }
    }
  });

  it('take the place of planted links, and are never written through them', () => {
    const payloads = join(work, 'planted');
    mkdirSync(payloads);
    const [first, ...others] = disk('export', dir)
      .stdout.trim()
      .split('\n')
      .map((line) => JSON.parse(line).key);
    const victim = join(work, 'victim');
    writeFileSync(victim, 'mine');
    symlinkSync(victim, join(payloads, `${first}.bin`));
    expect(disk('export', dir, '--payloads', payloads).status).toBe(0);
    expect(readFileSync(victim, 'utf8')).toBe('mine');
    expect(statSync(join(payloads, `${first}.bin`)).size).toBe(16384);
    expect(readdirSync(payloads).length).toBe(1 + others.length);
  });

  it('that cannot be written are one line and exit code 2', () => {
    const payloads = join(work, 'blocked');
    mkdirSync(payloads);
    for (const { key } of disk('export', dir)
      .stdout.trim()
      .split('\n')
      .map((line) => JSON.parse(line))) {
      mkdirSync(join(payloads, `${key}.bin`));
    }
    const { status, stderr } = disk('export', dir, '--payloads', payloads);
    expect(status).toBe(2);
    expect(stderr).toMatch(/^[^\n]*--payloads: writing [^\n]* failed with [^\n]*\[TKV_IO\]\n$/);
  });
});

it('a superblock without identity is one line and exit code 2', async () => {
  const bare = join(work, 'bare');
  mkdirSync(bare);
  await (await FileStore.open(bare, shape, { restart: 'warm' }))[Symbol.asyncDispose]();
  editFile(join(bare, 'tierkv.blocks'), 0, 4096, (bytes) => {
    const header = new DataView(bytes.buffer);
    const text = new TextEncoder().encode(
      '{"storeId":{"lo":1,"hi":2},"pageBytes":16384,"slotBytes":[16384]}',
    );
    bytes.fill(0, 24);
    bytes.set(text, 24);
    header.setUint32(12, text.byteLength, true);
    const { lo, hi } = digestBytes(bytes.subarray(24));
    header.setUint32(16, lo, true);
    header.setUint32(20, hi, true);
  });
  for (const command of ['stat', 'fsck', 'export']) {
    const { status, stdout, stderr } = disk(command, bare);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toMatch(/^[^\n]*has a damaged superblock[^\n]*\[TKV_MISMATCH\]\n$/);
  }
});

it('a store whose restarts begin empty has no fault after its end, and is not said to be unclosed', async () => {
  const plain = join(work, 'plain');
  mkdirSync(plain);
  const store = await FileStore.open(plain, shape);
  await store.write([1, 2, 3].map((slot) => patternItem(shape, slot, 0, 1)));
  await store[Symbol.asyncDispose]();
  const fsck = disk('fsck', plain);
  expect(fsck).toMatchObject({ status: 0, stderr: '' });
  expect(fsck.stdout).toMatch(/3 records checked/);
  expect(fsck.stdout).toMatch(/it keeps no index: its next start begins empty/);
  expect(fsck.stdout).not.toContain('not closed');
  expect(disk('stat', plain).stdout).toMatch(/closed cleanly .* not noted: it keeps no index/);

  const warm = join(work, 'warm');
  mkdirSync(warm);
  await (await FileStore.open(warm, shape, { restart: 'warm' }))[Symbol.asyncDispose]();
  rmSync(join(warm, 'tierkv.index'));
  const lost = disk('fsck', warm);
  expect(lost.status).toBe(1);
  expect(lost.stdout).toContain('fault     index: the index file is missing');
});
