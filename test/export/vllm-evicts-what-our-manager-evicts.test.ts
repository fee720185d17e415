import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { vllmModule, vllmPolicyNames } from '../../src/policy/export/vllmModule.ts';
import type { EvictionChoice } from '../../src/runtime/eviction/evictionPolicy.ts';
import { evictionPolicyNames } from '../../src/runtime/eviction/registry.ts';
import { Random } from '../fuzz/random.ts';
import { OnePool } from '../runtime/policy/onePool.ts';
import { sized } from '../sized.ts';
import type { Op } from './conversations.ts';
import { ourRun, type Run, TOKENS } from './ourRun.ts';

const here = fileURLToPath(new URL('.', import.meta.url));
const seed = Number(process.env.TIERKV_POLICY_SEED ?? 55_06);
const OPERATIONS = sized(10_000, 100_000);
const out = mkdtempSync(path.join(tmpdir(), 'tierkv-export-'));
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** Folder with `vllm/v1/kv_offload` of the wheel of vLLM 0.33.0: `unzip vllm-*.whl 'vllm/v1/kv_offload/*'`. */
const wheel = process.env.TIERKV_VLLM ?? path.join(homedir(), '.cache', 'tierkv', 'vllm-0.33.0');
const hasWheel = existsSync(path.join(wheel, 'vllm', 'v1', 'kv_offload', 'cpu', 'manager.py'));
const python = process.env.TIERKV_PYTHON ?? 'python3';

function imports(statement: string, remedy: string): boolean {
  try {
    execFileSync(python, ['-c', statement], { stdio: 'ignore' });
    return true;
  } catch {
    console.warn(`SKIPPED: exported policies beside our manager: ${remedy}`);
    return false;
  }
}

const hasPython = imports('import sys; assert sys.version_info >= (3, 10)', 'needs python3 of at least 3.10');
const canDrive = hasPython && hasWheel && imports('import numpy, typing_extensions', 'pip install numpy');
if (!hasWheel) {
  console.warn(
    `SKIPPED: exported policies in vLLM's own manager: no ${wheel}. pip download vllm==0.33.0 --no-deps, and unzip ` +
      "'vllm/v1/kv_offload/*' of it there, or name the folder in TIERKV_VLLM",
  );
}

function theirRun(choice: EvictionChoice, capacity: number, ops: readonly Op[], vllm: string): number[][] {
  const module = `tierkv_${choice.policy}`;
  const { source, settings } = vllmModule(choice, module);
  writeFileSync(path.join(out, `${module}.py`), source);
  const args = [path.join(here, 'driver.py'), vllm, out];
  const task = { capacity, policy: settings.eviction_policy, module, tokens: TOKENS, ops };
  const input = JSON.stringify(task);
  return JSON.parse(execFileSync(python, args, { input, maxBuffer: 1 << 28 }).toString('utf8')) as number[][];
}

/** Fails at the first operation of which both answer differently. */
function expectAlike({ ops, answers }: Run, theirs: readonly (readonly number[])[]): void {
  const first = answers.findIndex((answer, i) => String(answer) !== String(theirs[i]));
  const near = first === -1 ? '' : `${String(ops[first])}: ${answers[first]} beside ${theirs[first]}`;
  expect(first, near).toBe(-1);
  expect(theirs.length).toBe(ops.length);
}

const evicted = ({ ops, answers }: Run): number =>
  ops.reduce((sum, [kind], i) => sum + (kind === 'store' ? answers[i].length : 0), 0);

const interfaces: readonly (readonly [string, string, boolean])[] = [
  ['a stand-in of the interface', path.join(here, 'standIn'), hasPython],
  ["vLLM 0.33.0's own manager", wheel, canDrive],
];

for (const [what, vllm, isThere] of interfaces) {
  it.runIf(isThere).each([
    ['hazard', 400, 1],
    ['hazard', 400, 6],
    ['hazard', 2_000, 6],
    ['lru', 400, 6],
  ])(
    `%s over %i chunks, %i requests at a time, evicts in ${what} what it evicts in our manager (seed ${seed})`,
    (policy, capacity, most) => {
      const run = ourRun({ policy }, capacity, most, seed, OPERATIONS);
      expectAlike(run, theirRun({ policy }, capacity, run.ops, vllm));
      expect(evicted(run)).toBeGreaterThan(OPERATIONS);
    },
    600_000,
  );

  it.runIf(isThere).each(['fifo', 'lfu', 'arc', 's3fifo'])(
    `%s evicts in ${what} what it evicts in the smallest cache, where prefixes break (seed ${seed})`,
    (policy) => {
      const random = new Random(seed);
      const pool = new OnePool({ policy }, 60);
      const ops: Op[] = [];
      const answers: number[][] = [];
      for (let request = 1; ops.length < OPERATIONS; request++) {
        // some blocks come often, some come once, and now and then many come in a row
        const scan = request % 400 > 320;
        const id = scan ? 1_000 + request : random.below(random.chance(0.5) ? 200 : 50);
        const { hits, evicted: gone } = pool.request([id]);
        ops.push(['open', request, request, [id]], ['store', request, request, hits === 1 ? [] : [id]]);
        ops.push(['end', request, request, []]);
        answers.push(hits === 1 ? [id] : [], gone, []);
      }
      expectAlike({ ops, answers }, theirRun({ policy }, 60, ops, vllm));
      expect(evicted({ ops, answers })).toBeGreaterThan(OPERATIONS / 10);
    },
    600_000,
  );
}

it.runIf(hasPython)(
  'an exported policy keeps what a failed store, a pinned chunk and a reset ask of it',
  () => {
    writeFileSync(
      path.join(out, 'tierkv_hazard.py'),
      vllmModule({ policy: 'hazard' }, 'tierkv_hazard').source,
    );
    const args = [path.join(here, 'contract.py'), path.join(here, 'standIn'), out];
    expect(execFileSync(python, args).toString('utf8')).toBe('kept\n');
  },
);

it('every policy by name is exported, or says what vLLM does not tell it', () => {
  expect(vllmPolicyNames).toEqual(evictionPolicyNames.filter((name) => name !== 'priority'));
  expect(() => vllmModule({ policy: 'priority' }, 'mine')).toThrow(/who owns a chunk/);
});
