/**
 * TensorFlow.js as an independent second opinion, on its cpu backend and on its WebGPU backend on our device.
 */

import { createRequire } from 'node:module';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BufferUsage } from '../../../src/backends/webgpu/device.ts';
import { BlockTensors, blocksToTensor, tensorToBlocks } from '../../../src/compute/index.ts';
import { testDevice } from '../../backends/webgpu/testDevice.ts';
import { bytesOf, runCase } from '../cases/attentionRun.ts';
import { boundOf, type CaseShape, type PagedCase, pagedCase } from '../cases/pagedCase.ts';

const device = testDevice();
const require = createRequire(import.meta.url);
// Their types want the DOM library, which these sources do without.
// biome-ignore lint/suspicious/noExplicitAny: see above
let tf: any;
const added: string[] = [];

beforeAll(async () => {
  const { globals } = await import('webgpu');
  for (const name of Object.keys(globals)) if (!(name in globalThis)) added.push(name);
  Object.assign(globalThis, globals);
  const gpu = { requestAdapter: () => Promise.resolve(null), getPreferredCanvasFormat: () => 'rgba8unorm' };
  Object.defineProperty(globalThis.navigator, 'gpu', { value: gpu, configurable: true });
  tf = require('@tensorflow/tfjs-core');
  require('@tensorflow/tfjs-backend-cpu');
  const { WebGPUBackend } = require('@tensorflow/tfjs-backend-webgpu');
  tf.removeBackend('webgpu');
  const info = { vendor: '', architecture: '', device: '', description: '' };
  tf.registerBackend('webgpu', () => new WebGPUBackend(device.live.device, info));
});

// other files run in this process after this one, and must not find a browser there
afterAll(() => {
  for (const name of added) Reflect.deleteProperty(globalThis, name);
  Reflect.deleteProperty(globalThis.navigator, 'gpu');
});

const shape: CaseShape = {
  headDim: 16,
  kvHeads: 2,
  qHeads: 4,
  blockTokens: 8,
  slabs: 2,
  lengths: [150],
  layers: 2,
};

function slabsOf(one: PagedCase): GPUBuffer[] {
  return one.slabBytes.map((bytes) => {
    const usage = BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST;
    const buffer = device.live.device.createBuffer({ size: bytes.length, usage });
    device.live.device.queue.writeBuffer(buffer, 0, bytes);
    return buffer;
  });
}

async function opened(one: PagedCase) {
  const slabs = slabsOf(one);
  const { layout } = one;
  const blocks = await BlockTensors.open({ device: device.live.device, slabs, layout, tokensMax: 200 });
  return { slabs, blocks, range: { layer: one.layer, entries: one.entries, tokens: one.shape.lengths[0] } };
}

describe.each(['cpu', 'webgpu'])('the backend %s', (backend) => {
  beforeAll(async () => {
    expect(await tf.setBackend(backend)).toBe(true);
  });

  it.each(['f32', 'f16', 'i8'] as const)(
    '%s blocks become a tensor with their very numbers',
    async (dtype) => {
      const one = pagedCase({ ...shape, dtype });
      const { slabs, blocks, range } = await opened(one);
      const made = await blocksToTensor(tf, blocks, range);
      expect(made.zeroCopy).toBe(backend === 'webgpu');
      expect(made.tensor.shape).toEqual([150, 2, 2, 16]);
      const found = await made.tensor.data();
      const { k, v } = one.stored[0];
      for (let i = 0; i < found.length; i++) {
        const [dim, head, isV, token] = [i % 16, (i >> 4) % 2, (i >> 5) % 2 === 1, i >> 6];
        const wanted = (isV ? v : k)[(head * 150 + token) * 16 + dim];
        expect(Math.abs(found[i] - wanted), `${i}`).toBeLessThanOrEqual(Math.abs(wanted) * 2 ** -23);
      }
      made.dispose();
      for (const slab of slabs) slab.destroy();
    },
  );

  it('a tensor goes into blocks, and no byte beside them changes', async () => {
    const one = pagedCase(shape);
    const { slabs, blocks, range } = await opened(one);
    const made = await blocksToTensor(tf, blocks, range);
    const negated = tf.neg(made.tensor);
    await tensorToBlocks(tf, blocks, range, negated);
    const back = tf.neg(negated);
    expect(await bytesOf(device.live.device, slabs[0])).not.toEqual(one.slabBytes[0]);
    await tensorToBlocks(tf, blocks, range, back);
    for (const [i, slab] of slabs.entries()) {
      expect(await bytesOf(device.live.device, slab)).toEqual(one.slabBytes[i]);
    }
    await expect(tensorToBlocks(tf, blocks, range, tf.transpose(back))).rejects.toMatchObject({
      field: 'tensor',
    });
    for (const tensor of [negated, back]) tensor.dispose();
    made.dispose();
    for (const slab of slabs) slab.destroy();
  });

  it('a tensor whose numbers still lie in host memory goes into blocks too', async () => {
    const one = pagedCase(shape);
    const { slabs, blocks, range } = await opened(one);
    const made = await blocksToTensor(tf, blocks, range);
    const negated = Float32Array.from(await made.tensor.data(), (value: number) => -value);
    const fresh = tf.tensor(negated, [150, 2, 2, 16], 'float32');
    await tensorToBlocks(tf, blocks, range, fresh);
    const again = await blocksToTensor(tf, blocks, range);
    expect(Float32Array.from(await again.tensor.data())).toEqual(negated);
    fresh.dispose();
    for (const each of [made, again]) each.dispose();
    for (const slab of slabs) slab.destroy();
  });

  it('its attention over that tensor agrees with the kernels', async () => {
    const one = pagedCase(shape);
    const attended = await runCase(device.live.device, one);
    const { slabs, blocks, range } = await opened(one);
    const made = await blocksToTensor(tf, blocks, range);
    const [k, v] = tf.unstack(tf.transpose(made.tensor, [1, 2, 0, 3]));
    const bound = boundOf(one);
    for (let head = 0; head < 4; head++) {
      const of = (tensor: unknown): unknown => tf.gather(tensor, head >> 1);
      const q = tf.tensor(one.qkv.slice(head * 16, head * 16 + 16), [1, 16]);
      const weights = tf.softmax(tf.mul(tf.matMul(q, of(k), false, true), 0.25));
      const opinion: Float32Array = await tf.matMul(weights, of(v)).data();
      opinion.forEach((value, dim) => {
        // both are off from the truth
        expect(Math.abs(attended[head * 16 + dim] - value)).toBeLessThanOrEqual(2 * bound(value));
      });
    }
    made.dispose();
    for (const slab of slabs) slab.destroy();
  });
});
