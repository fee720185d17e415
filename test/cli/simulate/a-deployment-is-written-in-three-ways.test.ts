/** Options, a description and a deployment file come to one plan, and one simulation. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { buildPlanned } from '../../../src/simulate/build.ts';
import {
  type AskedSimulation,
  askedBy,
  optionNameOf,
  readWords,
  simulateRows,
} from '../../../src/simulate/optionTable.ts';
import { planSimulation } from '../../../src/simulate/plan.ts';
import { simulate } from '../../../src/simulate/simulate.ts';
import { askedFor, descriptionOf } from '../../../src/simulate/spec.ts';
import { readPayload, writePayload } from '../../../src/workers/payload.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-ways-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const asked = (text: string): AskedSimulation => askedBy(readWords(text.split(' ')));

describe('options and a description ask for the same', () => {
  test.each(simulateRows.map(([flags]) => flags))('%s', (flags) => {
    const [flag, value] = flags.split(' ');
    const name = optionNameOf(flags);
    const needs = ['deployment', 'set'].includes(name) ? '--deployment a.yaml' : '--model m';
    for (const given of value === undefined ? [''] : [' 7', ' 0.5', ' text=1,b', ' 007']) {
      const before = asked(`${needs} ${flag}${given}`);
      const after = askedFor(descriptionOf(before));
      expect(after.options).toEqual(before.options);
      expect([...after.given].sort()).toEqual([...before.given].sort());
      // a description is data: it may stand in a file
      expect(askedFor(JSON.parse(JSON.stringify(descriptionOf(before)))).options).toEqual(before.options);
    }
  });

  it('numbers are numbers, and a workload has its field', () => {
    const { workload, ...spec } = descriptionOf(asked('--model m --tp 2 --floor --seed 7 trace.jsonl'));
    expect(spec).toEqual({ model: 'm', tp: 2, latency: { floor: true }, seed: '7' });
    expect(workload).toEqual({ file: 'trace.jsonl' });
    expect(() => descriptionOf(asked('--model m --workload-spec a.yaml trace.jsonl'))).toThrow(
      '--workload-spec excludes trace.jsonl. Keep one of them.',
    );
  });
});

const file = path.join(folder, 'deployment.yaml');
fs.writeFileSync(
  file,
  `version: 1
models: [{ name: qwen3-14b, hardware: H100, tp: 2, latency_model: calibrated }]
pools: [{ name: chat, replicas: 2, engine: { total_kv_blocks: 400, kv_cpu_blocks: 300 } }]
control: { routing: { policy: round-robin } }
workload: { preset: chatbot, rate: 20, num_requests: 30 }
`,
);

it('a description names a file, and fields of it', () => {
  const plain = simulate({ file });
  expect(plain.gpus).toBe(4);
  expect(simulate({ file, set: ['pools[0].replicas=3'], seed: 5 }).gpus).toBe(6);
  const same = { model: 'qwen3-14b', hardware: 'H100', tp: 2, latency: { model: 'calibrated' } } as const;
  const described = simulate({
    ...same,
    pools: { instances: 2 },
    engine: { kvBlocks: 400 },
    tiers: { hostBlocks: 300 },
    control: { routing: { policy: 'round-robin' } },
    workload: { preset: 'chatbot', rate: 20, requests: 30 },
  });
  expect(described.metrics.e2e_mean_ms).toBe(plain.metrics.e2e_mean_ms);
  expect(() => simulate({ file, tp: 2 })).toThrow(
    /^tp is given beside file\. Write it into the file, or change the file with set\.$/,
  );
  expect(() => simulate({ file, options: { nothing: 1 } })).toThrow(/options\.nothing is not known/);
  expect(() => simulate({ file, set: ['a', 1] as unknown as string[] })).toThrow(
    /^set must be a list of texts/,
  );
});

describe('a plan', () => {
  const ways = [
    '--model qwen3-14b --workload chatbot --rate 20 --num-requests 40 --num-instances 3 --routing-policy weighted',
    `--deployment ${file} --seed 3`,
    '--model qwen3-14b --num-requests 30 --num-instances 2 --prefill-instances 1 --decode-instances 1 --pd-decider always',
  ];

  it.each(ways)('travels as text, and its simulation is the same: %s', (args) => {
    const { workload, options } = asked(args);
    const plan = planSimulation(workload, options);
    const travelled = readPayload(writePayload(plan)) as typeof plan;
    const run = (each: typeof plan): string => {
      const { simulation } = buildPlanned(each);
      simulation.run();
      simulation.close();
      return JSON.stringify([simulation.key.policies, [...simulation.table.e2eUs]]);
    };
    expect(run(travelled)).toBe(run(plan));
    expect(run(structuredClone(plan))).toBe(run(plan));
  });

  it('needs no file that describes it any more', () => {
    const gone = path.join(folder, 'gone.yaml');
    fs.copyFileSync(file, gone);
    const { options } = asked(`--deployment ${gone}`);
    const plan = planSimulation(undefined, options);
    fs.rmSync(gone);
    expect(buildPlanned(plan).gpus()).toBe(4);
  });
});
