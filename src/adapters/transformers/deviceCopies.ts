/// <reference types="@webgpu/types" preserve="true" />

/**
 * Copies between dense KV tensors that are buffers of a GPU and the blocks of a runtime on the same device, by kernels:
 * nothing of them goes through host memory. The order of the bytes is the one of `blockCopies.ts`. Work is submitted to the
 * device's queue before a call returns, ahead of all that is submitted later.
 */

import { BufferUsage, type LiveDevice, writeWords } from '../../backends/webgpu/device.ts';
import { shaderSource } from '../../backends/webgpu/kernels.ts';
import { computeShaders } from '../../backends/webgpu/shaderTexts.ts';
import { dispatchMany, type PagedPipeline, pagedPipeline } from '../../compute/kernelText.ts';
import { TierKVError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/geometry/layout.ts';

const { STORAGE, COPY_SRC, COPY_DST } = BufferUsage;
const UNIFORM = 0x40;
/** Invocations of a workgroup, as in the shaders. */
const LANES = 64;
/** Bytes from one uniform to the next: no device asks for a larger alignment. */
const UNIFORM_STRIDE = 256;
/** onnxruntime reads and writes vectors of this many bytes: a buffer ends at one. */
const VECTOR_BYTES = 16;

/** Where a block of a sequence lies. */
export interface DensePlace {
  /** In its sequence, from 0. */
  readonly index: number;
  readonly slab: number;
  readonly offsetBytes: number;
}

/** Bytes that kernels move at a time: rows of every layout are whole words. */
function unitOf({ rowBytes }: KVLayout): 4 | 8 | 16 {
  return ([16, 8] as const).find((bytes) => rowBytes % bytes === 0) ?? 4;
}

export class DeviceCopies {
  readonly device: GPUDevice;
  readonly #live: LiveDevice;
  /** The pool's buffers. */
  readonly slabs: readonly GPUBuffer[];
  readonly #layout: KVLayout;
  readonly #unitBytes: number;
  readonly #gather: PagedPipeline;
  readonly #scatter: PagedPipeline;

  private constructor(
    { live, slabs, layout }: { live: LiveDevice; slabs: readonly GPUBuffer[]; layout: KVLayout },
    unitBytes: number,
    gather: PagedPipeline,
    scatter: PagedPipeline,
  ) {
    this.device = live.device;
    this.#live = live;
    this.slabs = slabs;
    this.#layout = layout;
    this.#unitBytes = unitBytes;
    this.#gather = gather;
    this.#scatter = scatter;
  }

  /** @throws TKV_DEVICE if the device does not compile the kernels */
  static async open(live: LiveDevice, slabs: readonly GPUBuffer[], layout: KVLayout): Promise<DeviceCopies> {
    const { device } = live;
    const unitBytes = unitOf(layout);
    const { blockTokens, kvHeads, kvStrideBytes, headStrideBytes } = layout;
    const stored = { 4: 'u32', 8: 'vec2<u32>', 16: 'vec4<u32>' }[unitBytes];
    const read = { type: 'read-only-storage' } as const;
    const write = { type: 'storage' } as const;
    const kernel = (name: string, slab: GPUBufferBindingLayout, tensor: GPUBufferBindingLayout) =>
      pagedPipeline(device, {
        name,
        code: `alias Stored = ${stored};\n${shaderSource(computeShaders, 'denseHeads', name)}`,
        constants: {
          blockTokens,
          runUnits: kvStrideBytes / unitBytes,
          headUnits: headStrideBytes / unitBytes,
          kvHeads,
        },
        own: { 0: read, 1: { type: 'uniform' }, 2: slab, 3: tensor },
      });
    const [gather, scatter] = await Promise.all([
      kernel('gatherHeads', read, write),
      kernel('scatterHeads', write, read),
    ]);
    return new DeviceCopies({ live, slabs, layout }, unitBytes, gather, scatter);
  }

  /**
   * New buffers with the first `tokens` tokens: key and value of each layer, in order. The caller destroys them.
   * @param places of the blocks that hold these tokens
   * @throws TKV_DEVICE where the device has no room for them, or for tensors above its limits
   */
  async gather(places: readonly DensePlace[], tokens: number): Promise<GPUBuffer[]> {
    const { layers } = this.#layout;
    const size = Math.ceil(this.tensorBytes(tokens) / VECTOR_BYTES) * VECTOR_BYTES;
    const tensors: GPUBuffer[] = [];
    try {
      await this.#checked(() => {
        for (let i = 0; i < 2 * layers; i++) {
          const usage = STORAGE | COPY_SRC | COPY_DST;
          tensors.push(this.device.createBuffer({ label: 'tierkv.past_key_values', size, usage }));
        }
        this.#run(this.#gather, tensors, tokens, places);
      });
    } catch (error) {
      for (const tensor of tensors) tensor.destroy();
      throw error;
    }
    return tensors;
  }

  /**
   * Writes blocks from tensors of `tokens` tokens: key and value of each layer, in order.
   * @throws TKV_DEVICE where the device refuses the work; what the blocks hold is not known then
   */
  scatter(tensors: readonly GPUBuffer[], tokens: number, places: readonly DensePlace[]): Promise<void> {
    return this.#checked(() => this.#run(this.#scatter, tensors, tokens, places));
  }

  /**
   * Work that fails leaves zeros or what was there before: it is an error, and nothing of it is used. Its scopes are this
   * package's: what they catch is told here, and does not count as an error of the device.
   */
  async #checked(act: () => void): Promise<void> {
    const { device } = this;
    const live = this.#live;
    device.pushErrorScope('validation');
    device.pushErrorScope('out-of-memory');
    let problem: unknown;
    try {
      act();
    } catch (error) {
      problem = error;
    }
    const [memory, validation] = await Promise.all([live.popOwnScope(), live.popOwnScope()]).catch(
      (error: unknown) => [error], // the device is lost
    );
    const cause = problem ?? memory ?? validation ?? null;
    if (cause === null) return;
    const reason = live.lostReason || (cause as Error).message.split('\n')[0];
    throw new TierKVError(
      'TKV_DEVICE',
      `The device does not copy keys and values (${reason}). Use shorter prompts, or leave hbmBytes out.`,
      { field: 'hbmBytes', cause },
    );
  }

  tensorBytes(tokens: number): number {
    return this.#layout.kvHeads * tokens * this.#layout.rowBytes;
  }

  #run(
    kernel: PagedPipeline,
    tensors: readonly GPUBuffer[],
    tokens: number,
    places: readonly DensePlace[],
  ): void {
    const { device } = this;
    const { kvHeads, kvStrideBytes, layerStrideBytes } = this.#layout;
    const unitBytes = this.#unitBytes;
    const sorted = [...places].sort((a, b) => a.slab - b.slab || a.index - b.index);
    const slabs = [...new Set(sorted.map(({ slab }) => slab))];
    const table = Uint32Array.from(
      sorted.flatMap(({ index, offsetBytes }) => [index, offsetBytes / unitBytes]),
    );
    const parts = new Uint32Array((tensors.length * slabs.length * UNIFORM_STRIDE) / 4);
    const dispatches = tensors.flatMap((tensor, number) =>
      slabs.map((slab) => {
        const firstPlace = sorted.findIndex((place) => place.slab === slab);
        const count = sorted.filter((place) => place.slab === slab).length;
        const firstByte = Math.floor(number / 2) * layerStrideBytes + (number % 2) * kvStrideBytes;
        return { tensor, slab, part: [tokens, firstPlace, count, firstByte / unitBytes] as const };
      }),
    );
    dispatches.forEach(({ part }, i) => {
      parts.set(part, (i * UNIFORM_STRIDE) / 4);
    });
    const filled = (words: Uint32Array<ArrayBuffer>, usage: number): GPUBuffer => {
      const buffer = device.createBuffer({
        label: 'tierkv.places',
        size: words.byteLength,
        usage: usage | COPY_DST,
      });
      writeWords(device.queue, buffer, new Uint8Array(words.buffer), 0);
      return buffer;
    };
    const [placed, uniforms] = [filled(table, STORAGE), filled(parts, UNIFORM)];
    const encoder = device.createCommandEncoder({ label: 'tierkv.past_key_values' });
    const pass = encoder.beginComputePass();
    pass.setPipeline(kernel.pipeline);
    const runUnits = kvStrideBytes / unitBytes;
    dispatches.forEach(({ tensor, slab, part }, i) => {
      const resources: GPUBufferBinding[] = [
        { buffer: placed },
        { buffer: uniforms, offset: i * UNIFORM_STRIDE, size: 16 },
        { buffer: this.slabs[slab] },
        { buffer: tensor, size: this.tensorBytes(tokens) },
      ];
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      pass.setBindGroup(0, device.createBindGroup({ layout: kernel.layouts[0], entries }));
      dispatchMany(pass, Math.ceil((part[2] * kvHeads * runUnits) / LANES));
    });
    pass.end();
    device.queue.submit([encoder.finish()]);
    placed.destroy();
    uniforms.destroy();
  }
}
