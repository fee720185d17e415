import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { ReadProgress } from '../../../src/sim/build/mooncakeTrace.ts';
import { mooncakeLine, mooncakeLines, readAll, traceFile } from './traceFiles.ts';

const text = mooncakeLines(5000);

describe('a good trace', () => {
  it.each([
    ['trace.jsonl', Buffer.from(text)],
    ['trace.jsonl.gz', gzipSync(text)],
    ['trace.jsonl.zst', zstdCompressSync(text)],
    ['two gzip members.jsonl.gz', Buffer.concat([gzipSync(text.slice(0, 9999)), gzipSync(text.slice(9999))])],
    [
      'three zstd frames.jsonl.zst',
      Buffer.concat([
        zstdCompressSync(text.slice(0, 70)),
        zstdCompressSync(text.slice(70, 250_000)),
        zstdCompressSync(text.slice(250_000)),
      ]),
    ],
  ])('%s gives every request in file order, and the progress ends at the file size', async (name, bytes) => {
    const progress: ReadProgress = { bytesRead: 0, bytesTotal: 0, lines: 0 };
    const requests = await readAll(traceFile(name, bytes), { progress });
    expect(requests).toHaveLength(5000);
    requests.forEach((request, index) => {
      expect(request.line).toBe(index + 1);
      expect(request.outputTokens).toBe(20 + index);
      expect([...request.hashIds]).toEqual([0, index * 100 + 1, index * 100 + 2]);
    });
    expect(progress).toEqual({ bytesRead: bytes.length, bytesTotal: bytes.length, lines: 5000 });
  });

  it('zeros after the end of gzip data, as tapes and block devices leave them, are no damage', async () => {
    const path = traceFile('padded.jsonl.gz', Buffer.concat([gzipSync(text), Buffer.alloc(100_000)]));
    expect(await readAll(path)).toHaveLength(5000);
  });

  it('a pipe is read like a file of unknown size', async () => {
    const progress: ReadProgress = { bytesRead: 0, bytesTotal: 0, lines: 0 };
    const pipe = traceFile('.unused', '').replace('.unused', 'pipe');
    execFileSync('mkfifo', [pipe]);
    const writing = writeFile(pipe, text);
    expect(await readAll(pipe, { progress })).toHaveLength(5000);
    await writing;
    expect(progress).toEqual({ bytesRead: Buffer.byteLength(text), bytesTotal: 0, lines: 5000 });
  });

  it('a limit stops after that many requests and reads no further', async () => {
    const path = traceFile('long.jsonl', `${mooncakeLines(3)}not JSON\n`);
    expect(await readAll(path, { limit: 3 })).toHaveLength(3);
    await expect(readAll(path, { limit: 4 })).rejects.toThrow(/:4: is not valid JSON/);
  });

  it('a limit counts requests, not lines left out', async () => {
    const path = traceFile(
      'gaps.jsonl',
      `x\n${mooncakeLine(1)}\ny\n${mooncakeLine(2)}\n${mooncakeLine(3)}\n`,
    );
    const requests = await readAll(path, { limit: 2, skipBad: true });
    expect(requests.map((request) => request.line)).toEqual([2, 4]);
  });

  it.each([0, -1, 1.5, Number.NaN])('a limit of %s is refused before the file is opened', async (limit) => {
    await expect(readAll('missing.jsonl', { limit })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'limit',
    });
  });

  it('line ends of Windows, a byte-order mark, empty lines and a last line without end change nothing', async () => {
    const plain = await readAll(traceFile('unix.jsonl', mooncakeLines(3)));
    const odd = `\u{feff}${[0, 1, 2].map((i) => mooncakeLine(i)).join('\r\n\r\n')}`;
    const read = await readAll(traceFile('odd.jsonl', odd));
    expect(read.map((request) => ({ ...request, line: 0 }))).toEqual(
      plain.map((request) => ({ ...request, line: 0 })),
    );
    expect(read.map((request) => request.line)).toEqual([1, 3, 5]);
  });

  it('a request without input is refused, as simulations refuse it', async () => {
    const line = '{"timestamp": 0, "input_length": 0, "output_length": 0, "hash_ids": []}';
    await expect(readAll(traceFile('zero.jsonl', line))).rejects.toMatchObject({ field: 'input_length' });
  });
});
