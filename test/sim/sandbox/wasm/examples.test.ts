import fs from 'node:fs';
import { describe, expect, test } from 'vitest';
import { compilePolicy, policies, wasmFile } from '../../../../examples/policies/compileWasm.ts';
import { loadProgram } from '../../../../src/policy/sandbox/loadProgram.ts';
import type { PolicyFunction, Signature } from '../../../../src/policy/sandbox/program.ts';
import { Random } from '../../../fuzz/random.ts';

const fields = [
  'prefixAffinity',
  'inFlight',
  'queueDepth',
  'load',
  'kvUtilization',
  'freeBlocks',
  'capacityBlocks',
];
type Row = Record<string, number>;

function scoring(order: readonly string[]): Signature {
  return {
    name: 'score',
    inputs: [
      { name: 'request', kind: 'record', fields: { other: 'float', promptTokens: 'int' } },
      { name: 'cluster', kind: 'record', fields: { nowUs: 'int' } },
      {
        name: 'instances',
        kind: 'records',
        fields: Object.fromEntries(order.map((name) => [name, 'float'])),
      },
    ],
    decision: { kind: 'numbers', of: 'instances' },
  };
}

async function bound(policy: string, order: readonly string[]): Promise<PolicyFunction> {
  const source = fs.readFileSync(wasmFile(policy)).toString('base64');
  return (await loadProgram('wasm', source)).instantiate().bind(scoring(order));
}

function scores(policy: PolicyFunction, promptTokens: number, rows: readonly Row[]): number[] {
  const [request, , instances] = policy.inputs;
  request.values[request.field('promptTokens')] = promptTokens;
  instances.resize(rows.length);
  rows.forEach((row, i) => {
    for (const name of fields) instances.values[i * instances.width + instances.field(name)] = row[name];
  });
  return [...policy.call().subarray(0, rows.length)];
}

/** The five routing rules, written again. */
const formulas: Readonly<Record<string, (tokens: number, rows: readonly Row[]) => number[]>> = {
  llq: (_, rows) => rows.map(({ queueDepth }) => -queueDepth),
  lor: (_, rows) => rows.map(({ inFlight }) => -inFlight),
  oneToOne: (_, rows) =>
    rows.map(({ prefixAffinity, load }) => prefixAffinity * 0.5 + (1 / (1 + load)) * 0.5),
  glia: (tokens, rows) =>
    rows.map(({ capacityBlocks, freeBlocks, load }) => {
      const total = Math.max(1, capacityBlocks);
      const used = total - (capacityBlocks > 0 ? freeBlocks : 0) + (tokens * 1.6 + 15) / 16;
      return -used / total - 0.001 * load - (total - used >= total * 0.03 ? 0 : 10);
    }),
  evolved: (_, rows) => {
    const top = rows.reduce((a, b) => (b.prefixAffinity > a.prefixAffinity ? b : a));
    const crowded = top.inFlight - Math.min(...rows.map(({ inFlight }) => inFlight));
    const weight = top.prefixAffinity > 0.1 && crowded > 0 ? 0.5 * (1 / (1 + 0.6 * crowded)) : 0.5;
    return rows.map(({ prefixAffinity, load, kvUtilization, inFlight }) => {
      const full = kvUtilization > 0.9 ? (0.5 * (kvUtilization - 0.9)) / 0.1 : 0;
      return prefixAffinity * weight + (1 / (1 + load)) * (1 - weight) - full + 0.01 / (1 + inFlight);
    });
  },
};

describe.each(policies)('the WASM policy %s', (policy) => {
  test('is what the compiler makes of its source', async () => {
    const compiled = await compilePolicy(policy);
    expect(fs.readFileSync(wasmFile(policy)).equals(compiled), `node examples/policies/compileWasm.ts`).toBe(
      true,
    );
  });
});

describe.each(Object.keys(formulas))('the WASM rule %s', (policy) => {
  test('scores by its rule, wherever its fields lie', async () => {
    for (const order of [fields, ['unknown', ...fields.toReversed()]]) {
      const scored = await bound(policy, order);
      expect(scored.reads('instances', 'unknown')).toBe(false);
      const random = new Random(7);
      for (const count of [1, 4, 4, 16, 64, 3]) {
        const rows = Array.from({ length: count }, () => ({
          prefixAffinity: random.below(5) / 4,
          inFlight: random.below(9),
          queueDepth: random.below(9),
          load: random.below(20),
          kvUtilization: random.next(),
          freeBlocks: random.below(1000),
          capacityBlocks: 1000,
        }));
        const wanted = formulas[policy](333, rows);
        const found = scores(scored, 333, rows);
        found.forEach((score, i) => {
          expect(score).toBeCloseTo(wanted[i], 12);
        });
      }
    }
  });
});
