/** The loop around the scheduler in docs/guide/embedding.md type-checks against the public API, and serves. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import type { KVScheduler, KVStepPlan, SampledToken } from '../../src/index.ts';
import { blocks, openRuntime } from '../embed/liveRuntime.ts';
import { answerTo, ReadingEngine } from '../embed/scheduling/readingEngine.ts';

const root = join(import.meta.dirname, '..', '..');
const dir = mkdtempSync(join(tmpdir(), 'tierkv-loop-'));
const file = join(dir, 'loop.mts');
afterAll(() => rmSync(dir, { recursive: true }));

type Serve = (
  scheduler: KVScheduler,
  run: (plan: KVStepPlan) => Promise<SampledToken[]>,
  done: (id: string, tokens: Uint32Array, reason: string) => void,
) => Promise<void>;

function codeOfDocs(): string {
  const page = readFileSync(join(root, 'docs', 'guide', 'embedding.md'), 'utf8');
  const code = /```ts\n(import type \{ KVScheduler[\s\S]*?)```/.exec(page)?.[1];
  if (code === undefined) throw new Error('docs/guide/embedding.md has no loop around the scheduler');
  return code;
}

it('type-checks', () => {
  const wrong = join(dir, 'wrong.mts');
  writeFileSync(file, codeOfDocs());
  writeFileSync(wrong, codeOfDocs().replace('plan.requests.length', 'plan.request.length'));
  const config = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      paths: { tierkv: [join(root, 'src/index.ts')] },
      types: ['node'],
      typeRoots: [realpathSync(join(root, 'node_modules', '@types'))],
    },
    include: [],
    files: [file, wrong, join(root, 'src', 'webgpu-ambient.d.ts')],
  };
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify(config));
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { stdout } = spawnSync(process.execPath, [tsc, '-p', dir, '--pretty', 'false'], { encoding: 'utf8' });
  const found = stdout.split('\n').filter((line) => /error TS/.test(line));
  expect(found.filter((line) => !line.includes('wrong.mts'))).toEqual([]);
  expect(found.join('\n'), 'the check sees the types of the scheduler').toContain("'request' does not exist");
});

it('serves more requests than HBM has room for, also when a step fails', async () => {
  const runs = join(dir, 'runs.mts');
  writeFileSync(
    runs,
    codeOfDocs().replace("'tierkv'", `'${pathToFileURL(join(root, 'src/index.ts')).href}'`),
  );
  const { serve } = (await import(pathToFileURL(runs).href)) as { serve: Serve };
  await using kv = await openRuntime({ hbmBytes: blocks(20), ddrBytes: blocks(60) });
  const scheduler = kv.scheduler({ preemption: 'offload' });
  const engine = new ReadingEngine(kv);
  const prompts = Array.from({ length: 8 }, (_, i) =>
    Array.from({ length: 40 + 5 * i }, (__, j) => 50 * i + j),
  );
  prompts.forEach((tokens, i) => {
    scheduler.add({ id: `${i}`, tokens, maxTokens: 20, tenant: 'a' });
  });
  let steps = 0;
  const answers: Record<string, number[]> = {};
  const run = (plan: KVStepPlan): Promise<SampledToken[]> => {
    if (++steps === 9) return Promise.reject(new Error('a kernel failed'));
    return engine.run(plan);
  };
  await serve(scheduler, run, (id, tokens) => {
    answers[id] = [...tokens];
  });
  expect(answers).toEqual(Object.fromEntries(prompts.map((tokens, i) => [`${i}`, answerTo(tokens, 20)])));
  expect(scheduler.counters.preemptions).toBeGreaterThan(0);
});
