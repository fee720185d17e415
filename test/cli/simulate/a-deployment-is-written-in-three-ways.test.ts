/**
 * Options, fields and keys of a file are three ways to write one deployment: they leave the same typed values, come to one
 * plan and one simulation, and an error is in the words of the one who wrote it.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { readPayload, writePayload } from '../../../src/policy/workers/payload.ts';
import type { TierKVError } from '../../../src/runtime/errors.ts';
import { buildPlanned } from '../../../src/sim/build/build.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import { tieNames } from '../../../src/sim/control/routing/routingPolicy.ts';
import { readYaml } from '../../../src/sim/description/fields.ts';
import type { DeploymentSpec } from '../../../src/sim/description/knobs.ts';
import { flagOf, type Knob, keysOf, knobs, type Path, paths } from '../../../src/sim/description/knobs.ts';
import {
  type AskedSimulation,
  askedBy,
  fromFields,
  fromMapping,
  fromOptions,
  readWords,
} from '../../../src/sim/description/readers.ts';
import { type Deployment, nothingSaid } from '../../../src/sim/description/settings.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-ways-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const asked = (text: string): AskedSimulation => askedBy(readWords(text.split(' ')));

/** A value of each kind: its word, what a field holds, and what readers make of it. */
const samples: Readonly<Record<Knob['kind'], readonly [word: string, field: unknown, value: unknown]>> = {
  integer: ['7', 7, 7],
  number: ['0.5', 0.5, 0.5],
  time: ['7', 7, 7],
  size: ['64GiB', '64GiB', '64GiB'],
  flag: ['', true, true],
  text: ['x', 'x', 'x'],
  file: ['x.yaml', 'x.yaml', 'x.yaml'],
  name: ['', '', ''],
  seed: ['7', 7n, 7n],
  numbers: ['1,2.5', [1, 2.5], [1, 2.5]],
  targets: ['a,b=5ms,c=d=1s', { 'a,b': 5, 'c=d': 1000 }, { 'a,b': 5, 'c=d': 1000 }],
  microseconds: ['a,b=5,c=d=1', { 'a,b': 5, 'c=d': 1 }, { 'a,b': 5, 'c=d': 1 }],
  weights: ['a:2,b', { a: 2, b: 1 }, { a: 2, b: 1 }],
  parameters: ['a=2,b=true,c=x', { a: 2, b: true, c: 'x' }, { a: 2, b: true, c: 'x' }],
  texts: ['a=1', ['a=1'], ['a=1']],
};

function sampleOf(at: Path): readonly [word: string, field: unknown, value: unknown] {
  const { kind, names = [], min = 0 } = knobs[at];
  if (kind === 'number' && min >= 1) return ['1.5', 1.5, 1.5];
  return kind === 'name' ? [names[0], names[0], names[0]] : samples[kind];
}

/** A description with a value at a path, and what every description needs. */
function described(at: Path, value: unknown): object {
  const spec: Record<string, unknown> = at === 'file' || at === 'set' ? { file: 'a.yaml' } : { model: 'm' };
  const steps = at.split('.');
  let into = spec;
  for (const step of steps.slice(0, -1)) into = (into[step] ??= {}) as Record<string, unknown>;
  into[steps[steps.length - 1]] = value;
  return spec;
}

const keys = (['model', 'engine', 'workload'] as const).flatMap((mapping) =>
  keysOf(mapping).map(([key, at]) => ({ key, at, mapping })),
);

function keyed({ key, at, mapping }: (typeof keys)[number], value: unknown): Deployment {
  const root = readYaml(`# a comment\nunder:\n  ${key}: ${JSON.stringify(value)}\n`, 'd.yaml');
  expect(knobs[at].in).toBe(mapping);
  return fromMapping(root.section('under'), mapping, nothingSaid);
}

describe('the same value in three ways', () => {
  test.each(paths)('%s', (at) => {
    const [word, field, value] = sampleOf(at);
    const flag = flagOf(at);
    expect(fromOptions([[flag, knobs[at].kind === 'flag' ? true : word]]).values[at]).toEqual(value);
    // counts of instances by role are counts of all too
    expect(fromFields(described(at, field)).values[at === 'pools.instances' ? 'pools.total' : at]).toEqual(
      value,
    );
    for (const each of keys.filter((key) => key.at === at)) {
      expect(keyed(each, field).values[at]).toEqual(value);
    }
  });
});

/** Values that no kind takes, or that its bounds exclude; what is taken is left out below. */
const wrongs: readonly unknown[] = [
  'many',
  -1,
  '1.5.2',
  Number.NaN,
  true,
  null,
  [{}],
  { deep: {} },
  7n,
  () => 7,
];

const errorOf = (act: () => unknown): TierKVError | undefined => {
  try {
    act();
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ isTierKVError: true });
    return error as TierKVError;
  }
};

describe('a wrong value is told in the words of its writer', () => {
  test.each(paths)('%s', (at) => {
    let told = 0;
    const said = (error: TierKVError | undefined, name: string, begin: string): void => {
      if (error === undefined) return;
      told++;
      const entry = error.field?.startsWith(`${name} `) || error.field?.startsWith(`${name}.`);
      expect([error.field === name || entry, error.field]).toEqual([true, error.field]);
      expect(error.message.startsWith(begin)).toBe(true);
      // no option in the words of who wrote none
      if (!name.startsWith('--')) expect(error.message).not.toMatch(/--[a-z]/);
      expect(error.message).toMatch(/\. [A-Z].+/);
    };
    for (const wrong of wrongs) {
      said(
        errorOf(() => fromFields(described(at, wrong))),
        at,
        at,
      );
      for (const each of keys.filter((key) => key.at === at)) {
        if (typeof wrong === 'function' || typeof wrong === 'bigint' || Number.isNaN(wrong)) continue;
        said(
          errorOf(() => keyed(each, wrong)),
          `under.${each.key}`,
          `d.yaml:3: under.${each.key} `,
        );
      }
      if (typeof wrong !== 'string' || knobs[at].kind === 'flag') continue;
      said(
        errorOf(() => fromOptions([[flagOf(at), wrong]])),
        flagOf(at),
        flagOf(at),
      );
    }
    expect(told).toBeGreaterThan(0);
  });
});

describe('a description', () => {
  const preset = { preset: 'chatbot', rate: 20 };

  it('means one thing in any order of its keys', () => {
    const parts = Object.entries({
      model: 'qwen3-14b',
      workload: { ...preset, requests: 5 },
      pools: { decode: 1, prefill: 1, decider: 'always' },
      seed: 3,
    });
    const specs = [parts, parts.toReversed(), [parts[2], parts[0], parts[3], parts[1]]];
    const [first, ...others] = specs.map((each) => fromFields(Object.fromEntries(each)).values);
    for (const other of others) expect(other).toEqual(first);
  });

  it('has one name a setting', () => {
    expect(() => fromFields({ model: 'm', options: { numRequests: 5 } })).toThrow(/^options is not known/);
    expect(() => fromFields({ model: 'm', maxNumSeqs: 5 })).toThrow(/^maxNumSeqs is not known/);
  });

  it('takes names of users as they are', () => {
    const spec = (more: object): DeploymentSpec => ({
      model: 'qwen3-14b',
      workload: { ...preset, requests: 5 },
      ...more,
    });
    const two = { routing: { policy: 'weighted', scorers: { 'prefix-affinity:3,queue-depth': 1 } } };
    expect(() => simulate(spec({ control: two }))).toThrow(/prefix-affinity:3,queue-depth/);
    expect(() => simulate(spec({ targets: { ttftMs: { 'standard=9ms,batch': 5 } } }))).toThrow(
      /^targets\.ttftMs names the class "standard=9ms,batch", which no request has/,
    );
    const { values } = fromFields(spec({ targets: { ttftMs: { 'gold,eu': 200, 'a=b': 5 } } }));
    expect(values['targets.ttftMs']).toEqual({ 'gold,eu': 200, 'a=b': 5 });
  });

  it.each([
    [{ targets: { ttftMs: { standard: 'soon' } } }, 'targets.ttftMs.standard'],
    [{ control: { routing: { policy: 'lor', parameters: { x: 1 } } } }, 'control.routing.parameters.x'],
    [{ workload: { prompt: { mean: 10, min: 20 } } }, 'workload.prompt.mean'],
    [{ workload: { prompt: 1e9 } }, 'workload.prompt'],
    [{ workload: 'chatbot' }, 'workload'],
    [{ pools: { instances: 5000 } }, 'pools.instances'],
  ])('%j is about %s', (more, field) => {
    const error = errorOf(() => simulate({ model: 'qwen3-14b', ...more } as DeploymentSpec));
    expect([error?.field, error?.message.startsWith(field)]).toEqual([field, true]);
    expect(error?.message).not.toMatch(/--[a-z]/);
  });

  it('numbers are numbers, and a workload has its field', () => {
    const { values } = asked('--model m --tp 2 --floor --seed 7 trace.jsonl').deployment;
    expect(values).toEqual({
      model: 'm',
      tp: 2,
      'latency.floor': true,
      seed: 7n,
      'workload.file': 'trace.jsonl',
    });
    expect(() => asked('--model m --workload-spec a.yaml trace.jsonl')).toThrow(
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
  expect(() => simulate({ file, set: ['a', 1] as unknown as string[] })).toThrow(
    /^set must be a list of texts/,
  );
});

it('what a builder finds is told with the line of the file', () => {
  const small = path.join(folder, 'small.yaml');
  const text = fs.readFileSync(file, 'utf8');
  fs.writeFileSync(small, text.replace('total_kv_blocks: 400', 'hbm: 1'));
  const error = errorOf(() => simulate({ file: small }));
  expect([error?.code, error?.field]).toEqual(['TKV_CAPACITY', 'pools[0].engine.hbm']);
  expect(error?.message).toMatch(/Give more KV blocks \(pools\[0\]\.engine\.hbm\)/);
  fs.writeFileSync(
    small,
    text
      .replace('total_kv_blocks: 400', 'preemption_mode: offload, hbm: 400')
      .replace(', kv_cpu_blocks: 300', ''),
  );
  expect(errorOf(() => simulate({ file: small }))).toMatchObject({
    field: 'pools[0].engine.preemption_mode',
    path: small,
    line: 3,
  });
});

describe('a plan', () => {
  const ways = [
    '--model qwen3-14b --workload chatbot --rate 20 --num-requests 40 --num-instances 3 --routing-policy weighted',
    `--deployment ${file} --seed 3`,
    '--model qwen3-14b --num-requests 30 --num-instances 2 --prefill-instances 1 --decode-instances 1 --pd-decider always',
  ];

  it.each(ways)('travels as text, and its simulation is the same: %s', (args) => {
    const plan = planSimulation(asked(args).deployment);
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

  it.each([...routingPolicies.names])('has one control plane by options and by file: %s', (name) => {
    const byFile = path.join(folder, 'control.yaml');
    const own = '[{ name: qwen3-14b, hardware: H100, tp: 2 }]';
    const write = (control: string): void =>
      fs.writeFileSync(byFile, `version: 1\nmodels: ${own}\npools: [{ name: a }]\ncontrol: { ${control} }\n`);
    write(`routing: { policy: ${name} }`);
    const options = (more: string): string =>
      `--model qwen3-14b --gpu H100 --tp 2 --workload chatbot --rate 20 --routing-policy ${name}${more}`;
    const written = (): unknown =>
      planSimulation(asked(`--deployment ${byFile} --workload chatbot --rate 20`).deployment).control;
    expect(written()).toEqual(planSimulation(asked(options('')).deployment).control);
    if (!('ties' in routingPolicies.describe(name).parameters)) return;
    for (const ties of tieNames) {
      write(`routing: { policy: ${name}, ties: ${ties} }`);
      const same = planSimulation(asked(options(` --routing-parameters ties=${ties}`)).deployment);
      expect(written()).toEqual(same.control);
    }
  });

  it('draws among equal instances of a role by options and by file', () => {
    const byFile = path.join(folder, 'roles.yaml');
    fs.writeFileSync(
      byFile,
      `version: 1
models: [{ name: qwen3-14b, hardware: H100, tp: 2 }]
pools: [{ name: p, role: prefill, replicas: 2 }, { name: d, role: decode, replicas: 2 }]
control:
  decider: { policy: always }
  prefill_routing: { policy: weighted, scorers: { queue-depth: 1 } }
  decode_routing: { policy: weighted, scorers: { queue-depth: 1 } }
`,
    );
    const served = '--workload chatbot --rate 20';
    const roles = '--num-instances 4 --prefill-instances 2 --decode-instances 2 --pd-decider always';
    const scorers = '--prefill-routing-scorers queue-depth --decode-routing-scorers queue-depth';
    const options = asked(`--model qwen3-14b --gpu H100 --tp 2 ${roles} ${scorers} ${served}`);
    const { control } = planSimulation(asked(`--deployment ${byFile} ${served}`).deployment);
    expect(control).toEqual(planSimulation(options.deployment).control);
    expect(control.prefillRouting).toMatchObject({ ties: 'random' });
  });

  it('needs no file that describes it any more', () => {
    const gone = path.join(folder, 'gone.yaml');
    fs.copyFileSync(file, gone);
    const plan = planSimulation(asked(`--deployment ${gone}`).deployment);
    fs.rmSync(gone);
    expect(buildPlanned(plan).gpus()).toBe(4);
  });
});
