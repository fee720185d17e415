/** Prompts of coding agents as they were recorded, turn by turn: nothing broke there, and nothing is said to have. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { diagnose } from '../../src/serve/doctor/doctor.ts';
import { readRecording } from '../../src/serve/doctor/recordedRequests.ts';

const traces = process.env.TIERKV_TRACES ?? fileURLToPath(new URL('../../../shared/traces', import.meta.url));
const archive = join(traces, 'lmcache-agent-trace/miniswe.tar.gz');
const present = existsSync(archive);
if (!present) console.warn('SKIPPED: the public traces are not here (shared/traces)');
const dir = mkdtempSync(join(tmpdir(), 'tierkv-agents-'));
afterAll(() => rmSync(dir, { recursive: true }));

it.skipIf(!present)('402 calls of 20 sessions of an agent', () => {
  expect(spawnSync('tar', ['xzf', archive, '-C', dir]).status).toBe(0);
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.jsonl'),
  );
  const sessions = files.sort().map((name) => readRecording(join(dir, name)));
  // ids of the sessions are left out: clients send none
  const unnamed = sessions.map(({ requests, others }) => ({
    others,
    requests: requests.map((request) => ({ ...request, session: '' })),
  }));
  const { findings, conversations, turns } = diagnose(unnamed);
  expect(turns).toHaveLength(402);
  expect(findings).toEqual([]);
  expect(conversations).toBe(20);
});
