import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { inputErrorOf, mooncakeLines, readAll, traceFile } from './traceFiles.ts';

const text = mooncakeLines(3000);
const codecs: [suffix: string, compress: (data: string) => Buffer][] = [
  ['gz', gzipSync],
  ['zst', zstdCompressSync],
];

describe('a file that cannot be read to its end is an error', () => {
  it.each(codecs)('a .%s file cut anywhere', async (suffix, compress) => {
    const whole = compress(text);
    for (const kept of [1, 9, whole.length >> 1, whole.length - 9, whole.length - 1]) {
      const path = traceFile(`cut.jsonl.${suffix}`, whole.subarray(0, kept));
      const error = await inputErrorOf(readAll(path, { skipBad: true }));
      expect(error.message).toMatch(/is cut short after line \d+/);
      expect(error.path).toBe(path);
    }
  });

  it.each(codecs)('a .%s file with one byte changed', async (suffix, compress) => {
    const bytes = compress(text);
    bytes[bytes.length >> 1] ^= 0x55;
    const error = await inputErrorOf(readAll(traceFile(`flip.jsonl.${suffix}`, bytes)));
    expect(error.message).toMatch(/damaged compressed data|is not valid JSON/);
  });

  it.each(codecs)('plain text named .%s', async (suffix) => {
    const error = await inputErrorOf(readAll(traceFile(`plain.jsonl.${suffix}`, text)));
    expect(error.message).toMatch(/damaged compressed data after line 0/);
  });

  it.each(codecs)('.%s data under a plain name, with the name it should have', async (suffix, compress) => {
    const error = await inputErrorOf(readAll(traceFile('plain.jsonl', compress(text))));
    expect(error.message).toContain(`Give it a name that ends in .${suffix}.`);
  });

  it('an empty file, plain or compressed', async () => {
    for (const [name, content] of [
      ['empty.jsonl', ''],
      ['blank.jsonl', '\n\n  \n'],
      ['empty.jsonl.gz', ''],
      ['empty.jsonl.gz', gzipSync('')],
      ['empty.jsonl.zst', zstdCompressSync('')],
    ] as const) {
      const error = await inputErrorOf(readAll(traceFile(name, content)));
      expect(error.message).toMatch(/is empty: it has no request to replay/);
    }
  });

  it('a file without one good line, even when bad lines are left out', async () => {
    const path = traceFile('notes.txt', 'these are\nonly notes\n');
    const error = await inputErrorOf(readAll(path, { skipBad: true }));
    expect(error.message).toMatch(/has no good line among 2/);
  });

  it('a directory, a missing file, a file below a file', async () => {
    const file = traceFile('trace.jsonl', text);
    const dir = join(dirname(file), 'dir.gz');
    mkdirSync(dir);
    expect((await inputErrorOf(readAll(dir))).message).toMatch(/is a directory/);
    expect((await inputErrorOf(readAll(`${file}.missing`))).message).toMatch(/does not exist/);
    expect((await inputErrorOf(readAll(join(file, 'x')))).message).toMatch(/does not exist/);
  });
});
