/**
 * Inputs that once filled the memory, or were read without end: each ends in one line, in a process that
 * stays small.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { runCommand, wrongWith } from '../../fuzz-inputs/judge.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-limits-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});

const at = (name: string, ...parts: readonly (string | Buffer)[]): string => {
  const file = join(folder, name);
  fs.writeFileSync(file, '');
  for (const part of parts) fs.appendFileSync(file, part);
  return file;
};
const times = <T>(count: number, part: T): T[] => Array.from({ length: count }, () => part);
const mib = 2 ** 20;

async function refusal(...args: string[]): Promise<string> {
  const ended = await runCommand(args, folder, 100);
  expect(wrongWith(ended)).toBeUndefined();
  expect(ended.status).toBe(2);
  expect(ended.peakMib).toBeLessThan(1024);
  return ended.stderr;
}

describe('compressed data that unpack to more than any memory', () => {
  const zeros = Buffer.alloc(64 * mib);
  const spaces = Buffer.alloc(64 * mib, '\n');
  it.each([
    ['gz', () => gzipSync(zeros)],
    ['zst', () => zstdCompressSync(zeros)],
  ] as const)('as .%s are no workload', async (suffix, packed) => {
    const bomb = at(`bomb.jsonl.${suffix}`, ...times(40, packed()));
    expect(await refusal('workload', 'describe', bomb)).toContain(
      `${bomb} unpacks to more than 256 MiB, the most that is unpacked in memory. Unpack it to a file`,
    );
  });

  it('are no measurements', async () => {
    const bomb = at('bomb.csv.gz', ...times(40, gzipSync(spaces)));
    const says = `${bomb} holds more than 64 MiB, the most that is read of such a file`;
    expect(await refusal('latency', 'fit', '--steps', bomb, '--out', join(folder, 'o'))).toContain(says);
    expect(await refusal('latency', 'check', '--steps', bomb)).toContain(says);
  });

  it('are no trace of a replay, whose lines end', async () => {
    const bomb = at('bomb.jsonl.gz', ...times(40, gzipSync(zeros)));
    expect(await refusal('replay', bomb, '--driver', 'modeled')).toContain(
      `${bomb}:1: is longer than 16 MiB, the most that a line of a trace may have`,
    );
  });
});

describe('a line without end', () => {
  it('is refused by every reader of traces, with its number', async () => {
    const file = at('long.jsonl', '\n\n', ...times(200, Buffer.alloc(mib, '{')));
    const says = `${file}:3: is longer than 16 MiB`;
    expect(await refusal('replay', file, '--driver', 'modeled')).toContain(says);
    expect(await refusal('workload', 'describe', file)).toContain(says);
    expect(await refusal('workload', 'describe', file, '--from', 'mooncake')).toContain(says);
  });

  it('of a million block ids is refused, however well it is compressed', async () => {
    const ids = `[${'1,'.repeat(2 ** 20)}1]`;
    const length = (2 ** 20 + 1) * 64;
    const line = `{"timestamp":0,"input_length":${length},"output_length":1,"hash_ids":${ids}}\n`;
    const file = at('ids.jsonl.gz', gzipSync(line));
    const says = `${file}:1: hash_ids holds 1048577 ids, more than the 1048576 of a request`;
    const blocks = ['--block-tokens', '64'];
    expect(await refusal('replay', file, '--driver', 'modeled', ...blocks)).toContain(says);
    expect(await refusal('workload', 'describe', file, ...blocks)).toContain(says);
  });
});

it.skipIf(!fs.existsSync('/dev/zero'))(
  'a device that never ends cannot be a spec, a trace or a distribution',
  async () => {
    expect(await refusal('workload', 'generate', '/dev/zero', '--from', 'spec')).toContain(
      '/dev/zero is a pipe or a device',
    );
    expect(await refusal('workload', 'describe', '/dev/zero')).toContain('/dev/zero is a pipe or a device');
    const spec = at(
      'spec.yaml',
      `version: "2"\naggregate_rate: 1\nnum_requests: 3\nclients:\n  - {id: a, rate_fraction: 1, arrival: {process: poisson},
     input_distribution: {type: empirical, file: /dev/zero},
     output_distribution: {type: constant, params: {value: 1}}}\n`,
    );
    expect(await refusal('workload', 'generate', spec)).toContain('/dev/zero is a pipe or a device');
  },
);

it('aliases that unfold to a billion nodes hang no command', async () => {
  const bomb = Array.from(
    { length: 30 },
    (_, i) => `k${i}: &b${i} [${i === 0 ? '{x: 1}' : times(9, `*b${i - 1}`).join(', ')}]\n`,
  ).join('');
  for (const command of [
    ['workload', 'generate'],
    ['latency', 'predict', '--model', 'qwen3-14b', '--coefficients'],
    ['latency', 'predict', '--model', 'qwen3-14b', '--gpu'],
  ]) {
    expect(
      await refusal(
        ...command,
        at('bomb.json', bomb),
        ...(command[0] === 'workload' ? ['--from', 'spec'] : []),
      ),
    ).toMatch(/bomb\.json:\d+: /);
  }
});

it('brackets nested a hundred thousand deep are a mistake in the file, not a fault of tierkv', async () => {
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
  expect(await refusal('replay', at('deep.jsonl', deep), '--driver', 'modeled')).toContain(
    ':1: nests lists and objects more than 100 deep',
  );
  expect(await refusal('workload', 'generate', at('deep.yaml', `clients: ${deep}`))).toContain(
    'nested more than 100 deep',
  );
  const field = at('field.jsonl', `{"timestamp": ${deep}, "hash_ids": []}\n`);
  expect(await refusal('workload', 'describe', field)).toContain(
    ':1: nests lists and objects more than 100 deep',
  );
});

it('more different blocks than can be told apart are an error that says what to do', async () => {
  const lines = function* (): Generator<string> {
    for (let line = 0; line < 5; line++) {
      const ids = Array.from({ length: 2 ** 20 }, (_, i) => line * 2 ** 20 + i);
      yield `{"timestamp":0,"input_length":${2 ** 20},"output_length":1,"hash_ids":[${ids.join(',')}]}\n`;
    }
  };
  const file = at('wide.jsonl', ...lines());
  expect(
    await refusal('replay', file, '--driver', 'modeled', '--block-tokens', '1', '--nvme', 'all'),
  ).toMatch(
    /:5: hash_ids brings the trace to more than 4194304 different blocks\. Stop earlier with --num-requests/,
  );
  expect(await refusal('workload', 'describe', file, '--block-tokens', '1')).toMatch(
    /:5: hash_ids brings the trace to more than 4194304 different blocks/,
  );
}, 300_000);
