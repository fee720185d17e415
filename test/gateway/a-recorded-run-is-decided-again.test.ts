import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { decideAgain } from '../../src/serve/gateway/decisionLog.ts';
import { bundleOf, failingProgram, prefixBundle, recordedRun, writeLog } from './recordedRun.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-'));
const log = join(folder, 'log.jsonl');
afterAll(() => rmSync(folder, { recursive: true }));

const queue = { policy: 'banded', detector: 'concurrency', maxConcurrency: 2, maxDepth: 3, shedding: true };
const plans = {
  'round robin': {},
  'a prefix-aware bundle, with what backends say they hold': {
    policy: bundleOf({
      routing: {
        type: 'parameterized',
        template: 'weighted',
        parameters: { scorers: { 'precise-prefix-cache': 3, 'queue-depth': 1 }, ties: 'random' },
      },
    }),
  },
  'a queue that sheds and expires, and tenants with budgets': {
    control: {
      gateway: queue,
      admission: { policy: 'always-admit', tenantBudgets: { a: 0.001 } },
      shadow: { model: 'speculative' as const, blocks: 0, eventDelayUs: 1000, speculativeTtlUs: 100_000 },
      topK: 0,
    },
    queue: { tickUs: 1000, ttlUs: 30_000 },
    policy: prefixBundle,
    maxSequences: 2,
  },
  'an admission that delays, a program that fails, and two shadows': {
    control: { topK: 2 },
    policy: {
      ...failingProgram,
      admission: {
        type: 'decisionTree',
        root: {
          condition: { feature: 'request.waitedUs', comparison: '<', value: 5000 },
          trueChild: { action: 'delay', value: 4000 },
          falseChild: { action: 'admit' },
        },
      },
    } as const,
    shadows: [
      { name: 'prefix', bundle: prefixBundle },
      { name: 'fails', bundle: failingProgram },
    ],
  },
};

describe.each(Object.entries(plans))('%s', (_name, plan) => {
  it.each([1, 2, 3])('is decided again line for line, seed %i', async (seed) => {
    const { lines, outputs } = await recordedRun(plan, seed, 1500);
    writeLog(log, lines);
    const result = await decideAgain(log);
    expect(result).toMatchObject({ differences: [], isCut: false, decisions: outputs.length });
    expect(result.routes).toBeGreaterThan(300);
  });
});

it('the runs have all that they are to have', async () => {
  const kinds = new Set<string>();
  for (const plan of Object.values(plans)) {
    for (const output of (await recordedRun(plan, 1, 3000)).outputs) {
      kinds.add(output.out === 'admission' ? output.verdict : output.out);
    }
  }
  for (const kind of ['admit', 'delay', 'expired', 'fallback', 'reject', 'route', 'shed'])
    expect(kinds).toContain(kind);
});

it('a shadow may have any name', async () => {
  const names = ['__proto__', 'constructor'];
  const shadows = names.map((name) => ({ name, bundle: prefixBundle }));
  const { outputs } = await recordedRun({ shadows }, 1, 40);
  const seen = new Set<string>();
  for (const output of outputs) {
    if (output.out !== 'admission' && output.out !== 'route') continue;
    seen.add(output.out);
    expect(Object.keys(output.shadows ?? {})).toEqual(names);
  }
  expect([...seen].sort()).toEqual(['admission', 'route']);
});

describe('control: a log that was changed is decided otherwise', () => {
  it('a report with another queue', async () => {
    const { lines } = await recordedRun(
      plans['a queue that sheds and expires, and tenants with budgets'],
      1,
      1500,
    );
    const changed = lines.map((line) =>
      line.startsWith('{"in":"report"') ? line.replace(/"queueDepth":\d/, '"queueDepth":9000') : line,
    );
    writeLog(log, changed);
    const result = await decideAgain(log);
    expect(result.differences).not.toEqual([]);
  });

  it('a decision with another target, named by its line', async () => {
    const { lines } = await recordedRun({}, 1, 300);
    const at = lines.findIndex((line) => line.includes('"out":"route"'));
    lines[at] = lines[at].replace(/"target":\d+/, '"target":77');
    writeLog(log, lines);
    const { differences } = await decideAgain(log);
    expect(differences).toHaveLength(1);
    expect(differences[0].line).toBe(at + 1);
    expect(differences[0].written).toContain('"target":77');
  });

  it('a decision that is left out', async () => {
    const { lines } = await recordedRun({}, 1, 300);
    lines.splice(
      lines.findIndex((line) => line.includes('"out":"route"')),
      1,
    );
    writeLog(log, lines);
    const { differences } = await decideAgain(log);
    expect(differences.length).toBeGreaterThan(0);
    expect(differences[0].written).toBe('');
  });
});

describe('what a log may be', () => {
  it('the log of a killed gateway ends in the middle of a line', async () => {
    const { lines } = await recordedRun({}, 1, 300);
    writeLog(log, lines);
    const whole = readFileSync(log);
    writeFileSync(log, whole.subarray(0, whole.length - 20));
    expect(await decideAgain(log)).toMatchObject({ isCut: true, differences: [] });
  });

  it.each([
    ['', 'is empty'],
    ['{"format":"another"}\n', 'is not the first line of a log'],
    ['not JSON\n', 'is not valid JSON'],
  ])('%j is refused with the place', async (text, problem) => {
    writeFileSync(log, text);
    await expect(decideAgain(log)).rejects.toMatchObject({
      code: 'TKV_INPUT',
      message: expect.stringContaining(problem),
    });
  });

  it('a line in the middle that must be a record is refused with its number', async () => {
    const { lines } = await recordedRun({}, 1, 50);
    lines.splice(3, 0, '{"what":1}');
    writeLog(log, lines);
    await expect(decideAgain(log)).rejects.toMatchObject({ code: 'TKV_INPUT', line: 4 });
  });

  it('inputs that cannot follow each other are refused with the line', async () => {
    const { lines } = await recordedRun({}, 1, 50);
    lines.push(
      '{"in":"end","atUs":999999999,"request":4711,"how":"completed","outputTokens":1}',
      '{"in":"wake","atUs":999999999}',
    );
    writeLog(log, lines);
    await expect(decideAgain(log)).rejects.toMatchObject({
      code: 'TKV_INPUT',
      message: expect.stringContaining('cannot be taken'),
    });
  });
});
