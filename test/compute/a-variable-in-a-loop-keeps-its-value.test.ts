import { expect, it } from 'vitest';
import { BufferUsage } from '../../src/backends/webgpu/device/gpuConstants.ts';
import { kvFormat } from '../../src/compute/format.ts';
import { kernelText } from '../../src/compute/kernelText.ts';
import { kvLayout } from '../../src/runtime/geometry/index.ts';
import { softwareDevice } from '../backends/webgpu/softwareDevice.ts';
import { bytesOf } from './attentionRun.ts';

const device = softwareDevice();

/** What `x` holds at the end of three turns of a loop that adds 1 to it in each. */
async function lastTurn(declaration: string): Promise<number> {
  const gpu = device.live.device;
  const code = `
    @group(0) @binding(0) var<storage, read_write> o: array<f32>;
    @compute @workgroup_size(1) fn main() {
      for (var i = 0u; i < 3u; i++) { ${declaration} x[0] += 1.0; o[i] = x[0]; }
    }`;
  const module = gpu.createShaderModule({ code });
  const pipeline = gpu.createComputePipeline({ layout: 'auto', compute: { module } });
  const buffer = gpu.createBuffer({ size: 16, usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC });
  const entries = [{ binding: 0, resource: { buffer } }];
  const group = gpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const encoder = gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  pass.end();
  gpu.queue.submit([encoder.finish()]);
  const found = new Float32Array((await bytesOf(gpu, buffer)).buffer);
  buffer.destroy();
  return found[2];
}

it('hazard: without a value it keeps that of the turn before, where WGSL says zero; with one it never does', async () => {
  expect(await lastTurn('var x = array<f32, 2>();')).toBe(1);
  // 1 would be right: a release of the binding that gives it has the fault no more
  expect(await lastTurn('var x: array<f32, 2>;')).toBe(3);
});

it.each(['f32', 'f16'] as const)(
  'no kernel declares one without a value, once its lines are repeated (%s)',
  (dtype) => {
    const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 8, dtype, blockTokens: 4 });
    const format = kvFormat(layout, device.live.device.features);
    for (const name of ['attend', 'writeKv', 'writeKvScaled', 'reduceSplits']) {
      const access = name === 'reduceSplits' ? 'none' : 'read';
      const text = kernelText(name, { format, slabs: 2, access });
      expect(
        text.split('\n').filter((line) => /^\s+var\s+\w+\s*(:[^=]*)?;/.test(line)),
        name,
      ).toEqual([]);
      expect(text.replaceAll(/\/\/.*$/gm, '')).not.toMatch(/DIM|SLAB|ACCESS/);
    }
  },
);
