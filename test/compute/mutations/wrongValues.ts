/** Runs what tests a kernel on a device that changes the kernel's text, and counts what is found wrong. */

import { BlockTensors, NO_TOKEN } from '../../../src/compute/index.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { wrongBytesOfConversion } from '../blocks/convertedBlocks.ts';
import { filled, wrongBytesOfCopies } from '../blocks/copiedBlocks.ts';
import { openCase, runCase } from '../cases/attentionRun.ts';
import { int8Findings } from '../cases/int8Rows.ts';
import { attendedInF64, boundOf, type CaseShape, type PagedCase, pagedCase } from '../cases/pagedCase.ts';
import type { MutatedKernel, Mutation } from './mutations.ts';

const shape: CaseShape = {
  headDim: 8,
  kvHeads: 2,
  qHeads: 6,
  blockTokens: 4,
  layers: 2,
  slabs: 2,
  window: 140,
  lengths: [290, 9],
  positions: [[2, 127, 128, 200, 281], [8]],
};

const subjects: Readonly<Record<MutatedKernel, (device: GPUDevice) => Promise<number>>> = {
  lanes: (device) => wrongAttended(device, 'lanes'),
  workgroups: (device) => wrongAttended(device, 'workgroups'),
  write: (device) => wrongWritten(device, 'f32'),
  'write f16': (device) => wrongWritten(device, 'f16'),
  'write int8': wrongInt8,
  read: wrongRead,
  copy: (device) => {
    const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 8, dtype: 'f32', blockTokens: 5 });
    return wrongBytesOfCopies(device, layout, 1);
  },
  convert: async (device) =>
    (await wrongBytesOfConversion(device, 'i8', 'f32')) + (await wrongBytesOfConversion(device, 'f32', 'i8')),
};

/** @returns what is found wrong, and in how many kernels the mutation changed something */
export async function wrongValues(
  device: GPUDevice,
  mutation: Mutation,
): Promise<{ readonly wrong: number; readonly replaced: number }> {
  let replaced = 0;
  const changed = (descriptor: GPUShaderModuleDescriptor): GPUShaderModule => {
    // What a conversion is compared with is written by kernels as they are.
    const isOther = mutation.kernel === 'convert' && descriptor.label !== 'tierkv.convertBlocks';
    if (isOther) return device.createShaderModule(descriptor);
    const code = descriptor.code.replaceAll(mutation.search, mutation.replacement);
    if (code !== descriptor.code) replaced++;
    return device.createShaderModule({ ...descriptor, code });
  };
  const wrong = await subjects[mutation.kernel](deviceThat(device, changed));
  return { wrong, replaced };
}

/** What the kernels of a subject find as they are. */
export function wrongUnchanged(device: GPUDevice, kernel: MutatedKernel): Promise<number> {
  return subjects[kernel](device);
}

function deviceThat(device: GPUDevice, createShaderModule: GPUDevice['createShaderModule']): GPUDevice {
  return new Proxy(device, {
    get(target, name) {
      if (name === 'createShaderModule') return createShaderModule;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** In f32 and in int8, whose rows have scales. */
async function wrongAttended(device: GPUDevice, kernel: 'lanes' | 'workgroups'): Promise<number> {
  let wrong = 0;
  for (const dtype of ['f32', 'i8'] as const) {
    const one = pagedCase({ ...shape, dtype });
    const attended = await runCase(device, one, { kernel });
    const bound = boundOf(one);
    const isWrong = (value: number, i: number): boolean => !(Math.abs(attended[i] - value) <= bound(value));
    wrong += attendedInF64(one).filter(isWrong).length;
    if (wrong > 0) break; // the other format takes as long, and what is found is found
  }
  return wrong;
}

const lengths = [21, 3];
const [long, short] = lengths.map((length) => [...Array(length).keys()]);
const allTokens = { lengths, positions: [[...long, NO_TOKEN], short] };

async function written(device: GPUDevice, one: PagedCase): Promise<readonly Uint8Array[]> {
  const run = await openCase(device, one, { writes: true });
  await run.run();
  const slabs = await run.slabs();
  run.destroy();
  return slabs;
}

async function wrongWritten(device: GPUDevice, dtype: 'f32' | 'f16'): Promise<number> {
  const one = pagedCase({ ...shape, ...allTokens, dtype });
  return (await written(device, one)).reduce((sum, bytes, i) => {
    return sum + bytes.filter((byte, at) => byte !== one.slabBytes[i][at]).length;
  }, 0);
}

async function wrongInt8(device: GPUDevice): Promise<number> {
  const one = pagedCase({ ...shape, ...allTokens, dtype: 'i8' });
  return int8Findings(one, await written(device, one)).wrong;
}

async function wrongRead(device: GPUDevice): Promise<number> {
  const one = pagedCase({ ...shape, dtype: 'i8', lengths: [21], positions: [[20]] });
  const slabs = one.slabBytes.map((bytes) => filled(device, bytes));
  const { layout, layer, entries } = one;
  const tensors = await BlockTensors.open({ device, slabs, layout, tokensMax: 21 });
  const found = await tensors.read({ layer, entries, tokens: 21 });
  for (const slab of slabs) slab.destroy();
  const { k, v } = one.stored[0];
  return found.filter((value, i) => {
    const [dim, head, kv, token] = [i % 8, (i >> 3) % 2, (i >> 4) % 2, i >> 5];
    const wanted = [k, v][kv][(head * 21 + token) * 8 + dim];
    return !(Math.abs(value - wanted) <= Math.abs(wanted) * 2 ** -23);
  }).length;
}
