/**
 * Trace files for the tests of this folder: a directory that goes when the test ends, and lines in the
 * format.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { TierKVError } from '../../../src/runtime/errors.ts';
import {
  type ReadTraceOptions,
  readMooncakeTrace,
  type TraceRequest,
} from '../../../src/sim/build/mooncakeTrace.ts';

export function traceFile(name: string, content: string | Buffer): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-trace-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
}

export function mooncakeLine(index: number, blocks = 3): string {
  return JSON.stringify({
    timestamp: index * 1000,
    input_length: blocks * 512 - 100,
    output_length: 20 + index,
    hash_ids: Array.from({ length: blocks }, (_, i) => (i === 0 ? 0 : index * 100 + i)),
  });
}

export function mooncakeLines(count: number): string {
  return Array.from({ length: count }, (_, index) => `${mooncakeLine(index)}\n`).join('');
}

export async function readAll(path: string, options?: ReadTraceOptions): Promise<TraceRequest[]> {
  const requests: TraceRequest[] = [];
  for await (const request of readMooncakeTrace(path, options)) requests.push(request);
  return requests;
}

export async function inputErrorOf(reading: Promise<unknown>): Promise<TierKVError> {
  const error = await reading.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof TierKVError)) throw new Error(`expected a TierKVError, got ${String(error)}`);
  if (error.code !== 'TKV_INPUT') throw new Error(`expected TKV_INPUT, got ${error.code}: ${error.message}`);
  return error;
}
