/** Prompts of a coding agent as they were recorded, turn by turn: nothing broke there, and nothing is said to have. */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { afterAll, expect, it } from 'vitest';
import { diagnose } from '../../src/serve/doctor/doctor.ts';
import { readRecording } from '../../src/serve/doctor/recordedRequests.ts';

const traces = process.env.TIERKV_TRACES ?? fileURLToPath(new URL('../../../shared/traces', import.meta.url));
const archive = join(traces, 'lmcache-agent-trace/miniswe.tar.gz');
const present = existsSync(archive);
if (!present) console.warn('SKIPPED: the public traces are not here (shared/traces)');
const dir = mkdtempSync(join(tmpdir(), 'tierkv-agents-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** Files of a tar archive: heads of 512 bytes with name and octal size, contents padded to 512. */
function* filesOf(tar: Buffer): Generator<Buffer> {
  for (let at = 0; at + 512 <= tar.length && tar[at] !== 0; ) {
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 135), 8);
    if (tar.toString('latin1', at, at + 100).includes('.jsonl'))
      yield tar.subarray(at + 512, at + 512 + size);
    at += 512 + Math.ceil(size / 512) * 512;
  }
}

it.skipIf(!present)('402 calls of 20 sessions of an agent', () => {
  const sessions = [...filesOf(gunzipSync(readFileSync(archive)))].map((lines, i) => {
    const file = join(dir, `${i}.jsonl`);
    writeFileSync(file, lines);
    const { requests, others } = readRecording(file);
    // clients send no ids of sessions
    return { others, requests: requests.map((request) => ({ ...request, session: '' })) };
  });
  expect(sessions).toHaveLength(20);
  const { findings, conversations, turns } = diagnose(sessions);
  expect(turns).toHaveLength(402);
  expect(findings).toEqual([]);
  expect(conversations).toBeGreaterThanOrEqual(20);
  expect(conversations).toBeLessThan(24);
});
