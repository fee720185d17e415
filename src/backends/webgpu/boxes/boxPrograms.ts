/** The gather and scatter kernels, compiled for one device: each in a form for vectors and one for words. */

import { COMPUTE_STAGE } from '../gpuConstants.ts';
import type { LiveDevice } from '../liveDevice.ts';
import { shaderSource } from '../shaders.ts';
import { pieceForms } from './pieceList.ts';

export type BoxKernel = 'gather' | 'scatter';

/** How the work of a piece is spread over the device. */
export interface BoxKernelShape {
  /** Invocations of a workgroup, and of these how many at most share a run: powers of two. */
  readonly lanes: number;
  readonly lanesPerRun: number;
  /** Vectors, or words, that an invocation moves where there are enough. */
  readonly unitsPerLane: number;
}

/** A CPU likes an invocation that walks along a run, a GPU neighbours that touch neighbours. */
export const softwareBoxShape: BoxKernelShape = { lanes: 16, lanesPerRun: 1, unitsPerLane: 128 };
export const hardwareBoxShape: BoxKernelShape = { lanes: 64, lanesPerRun: 64, unitsPerLane: 8 };

export interface BoxPrograms {
  readonly shape: BoxKernelShape;
  readonly layouts: Record<BoxKernel, GPUBindGroupLayout>;
  /** In the order of `pieceForms`. */
  readonly pipelines: Record<BoxKernel, readonly GPUComputePipeline[]>;
}

/** @throws what the device says when it does not compile them */
export async function compileBoxPrograms(
  live: LiveDevice,
  label: string,
  shape: BoxKernelShape = live.adapter.software ? softwareBoxShape : hardwareBoxShape,
): Promise<BoxPrograms> {
  const { device } = live;
  const layouts = {
    gather: bindGroupLayout(device, `${label}.gather`, 'read-only-storage', 'storage'),
    scatter: bindGroupLayout(device, `${label}.scatter`, 'storage', 'read-only-storage'),
  };
  const compile = (kernel: BoxKernel): Promise<GPUComputePipeline[]> => {
    const name = `${label}.${kernel}`;
    const module = device.createShaderModule({ label: name, code: shaderSource(kernel, 'boxes') });
    const layout = device.createPipelineLayout({ label: name, bindGroupLayouts: [layouts[kernel]] });
    const constants = { lanes: shape.lanes, lanesPerRun: shape.lanesPerRun };
    return Promise.all(
      pieceForms.map((entryPoint) =>
        device.createComputePipelineAsync({
          label: name,
          layout,
          compute: { module, entryPoint, constants },
        }),
      ),
    );
  };
  const [gather, scatter] = await Promise.all([compile('gather'), compile('scatter')]);
  return { shape, layouts, pipelines: { gather, scatter } };
}

function bindGroupLayout(
  device: GPUDevice,
  label: string,
  slab: GPUBufferBindingType,
  packed: GPUBufferBindingType,
): GPUBindGroupLayout {
  const visibility = COMPUTE_STAGE;
  return device.createBindGroupLayout({
    label,
    entries: [
      { binding: 0, visibility, buffer: { type: slab } },
      { binding: 1, visibility, buffer: { type: 'read-only-storage', hasDynamicOffset: true } },
      { binding: 2, visibility, buffer: { type: packed } },
    ],
  });
}
