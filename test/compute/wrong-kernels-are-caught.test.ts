/**
 * Mutations of the kernels' text: each is a mistake that a kernel could have, and the comparison with 64-bit
 * floats must refuse it.
 */

import { expect, it, vi } from 'vitest';
import { softwareDevice } from '../backends/webgpu/softwareDevice.ts';
import { runCase } from './attentionRun.ts';
import { attendedInF64, boundOf, type CaseShape, pagedCase } from './pagedCase.ts';

const mutation = vi.hoisted(() => ({ search: '', replacement: '', replaced: 0 }));
vi.mock('../../src/compute/kernelText.ts', async (original) => {
  const module = await original<typeof import('../../src/compute/kernelText.ts')>();
  return {
    ...module,
    kernelText: (...of: Parameters<typeof module.kernelText>) => {
      const text = module.kernelText(...of);
      if (mutation.search === '' || !text.includes(mutation.search)) return text;
      mutation.replaced++;
      return text.replaceAll(mutation.search, mutation.replacement);
    },
  };
});

const device = softwareDevice();
const shape: CaseShape = {
  headDim: 8,
  kvHeads: 2,
  qHeads: 4,
  blockTokens: 4,
  layers: 2,
  slabs: 2,
  window: 140,
  lengths: [290, 9],
  positions: [[2, 127, 128, 200, 281], [8]],
};
const one = pagedCase(shape);
const wanted = attendedInF64(one);

async function wrongResults(): Promise<number> {
  const attended = await runCase(device.live.device, one);
  return wanted.filter((value, i) => !(Math.abs(attended[i] - value) <= boundOf(one, value))).length;
}

it('the kernels as they are pass', async () => {
  expect(await wrongResults()).toBe(0);
});

it.each([
  ['causal mask: the next token is seen too', 'let end = min(position + 1u,', 'let end = min(position + 2u,'],
  ['causal mask: the own token is not seen', 'let end = min(position + 1u,', 'let end = min(position,'],
  ['window: one token longer', 'position + 1u - min(window,', 'position - min(window,'],
  ['window: one token shorter', 'position + 1u - min(window,', 'position + 2u - min(window,'],
  ['window: none', 'window > 0u', 'false'],
  [
    'split: one token longer than its neighbour begins',
    '(split + 1u) * splitTokens)',
    '(split + 1u) * splitTokens + 1u)',
  ],
  ['split: one token shorter', '(split + 1u) * splitTokens)', '(split + 1u) * splitTokens - 1u)'],
  ['split: the last is left out of the sum', 'split < splits', 'split + 1u < splits'],
  ['split: sums are not brought to one largest score', 'exp2(sums.x - largest)', '1.0'],
  ['stride: V from K', 'let v = k + kvUnits', 'let v = k'],
  ['stride: rows of half the length', 'k += rowUnits', 'k += rowUnits / 2u'],
  ['stride: another KV head', 'rowAt(table, token, head / group)', 'rowAt(table, token, head % group)'],
  ['stride: another layer', ' + layer.units', ''],
  ['block: never the next', 'table + token / blockTokens', 'table'],
  ['block: another sequence', 'entriesAt + 2u * (table + ', 'entriesAt + 2u * ('],
  ['slab: always the first', 'let slab = tables[entryOf(table, token)]', 'let slab = 0u'],
  ['scale: left out', '] * scale', ']'],
  ['softmax: no rescale when a larger score comes', 'total *= keep', 'total *= 1.0'],
])('%s', async (_, search, replacement) => {
  Object.assign(mutation, { search, replacement, replaced: 0 });
  try {
    expect(await wrongResults()).toBeGreaterThan(0);
    expect(mutation.replaced, 'the mutation changes a kernel').toBeGreaterThan(0);
  } finally {
    mutation.search = '';
  }
});
