import fs from 'node:fs';
import { expect, test } from 'vitest';
import { loadProgram } from '../../../src/policy/sandbox/loadProgram.ts';
import type { PolicyFunction, PolicyLanguage, Signature } from '../../../src/policy/sandbox/program.ts';
import { Random } from '../../fuzz/random.ts';

const score: Signature = {
  name: 'score',
  inputs: [
    { name: 'request', kind: 'record', fields: { promptTokens: 'int' } },
    { name: 'cluster', kind: 'record', fields: { minInFlight: 'int' } },
    {
      name: 'instances',
      kind: 'records',
      fields: { prefixAffinity: 'float', load: 'int', inFlight: 'int', kvUtilization: 'float' },
    },
  ],
  decision: { kind: 'numbers', of: 'instances' },
};
const files = {
  starlark: 'starlark/evolved.star',
  wasm: 'wasm/evolved.wasm',
  javascript: 'javascript/evolved.js',
};

async function evolved(language: PolicyLanguage): Promise<PolicyFunction> {
  const bytes = fs.readFileSync(new URL(`../../../examples/policies/${files[language]}`, import.meta.url));
  const source = bytes.toString(language === 'wasm' ? 'base64' : 'utf8');
  return (await loadProgram(language, source)).instantiate().bind(score);
}

test('one rule gives the same bits in every language', async () => {
  const policies = [await evolved('starlark'), await evolved('wasm'), await evolved('javascript')];
  const random = new Random(11);
  for (let turn = 0; turn < 300; turn++) {
    const count = random.between(1, 20);
    const rows = Array.from({ length: count }, () => [
      random.below(9) / 8,
      random.below(40),
      random.below(12),
      random.next(),
    ]);
    const [first, ...others] = policies.map((policy) => {
      const [, cluster, instances] = policy.inputs;
      cluster.values[0] = Math.min(...rows.map(([, , inFlight]) => inFlight));
      instances.resize(count);
      instances.values.set(rows.flat());
      return [...policy.call().subarray(0, count)];
    });
    for (const other of others) expect(other).toEqual(first);
  }
});
