/**
 * An engine without weights. The KV of a token is its number in every row of its place, written where the
 * block table says, on a device or in host memory; the next token is a sum over the KV of all tokens before it, read back.
 * One wrong or missing row changes the whole answer.
 */

import type { KVRuntime, KVStepPlan, PlannedRequest, SampledToken } from '../../../src/index.ts';
import { layout } from '../liveRuntime.ts';

const MAP_READ = 0x1;
const COPY_DST = 0x8;

/** The token that follows, as every right run has it. */
export function nextToken(tokens: ArrayLike<number>): number {
  let sum = 7;
  for (let i = 0; i < tokens.length; i++) sum = (sum * 31 + tokens[i]) >>> 0;
  return sum % 50_000;
}

/** What a right run generates behind the prompt. */
export function answerTo(prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(nextToken(tokens));
  return tokens.slice(prompt.length);
}

export class ReadingEngine {
  /** Tokens whose KV was written. */
  written = 0;
  /** Called after the kernels of a step were submitted. */
  onSubmitted: (plan: KVStepPlan) => void = () => {};
  readonly #kv: KVRuntime;

  constructor(kv: KVRuntime) {
    this.#kv = kv;
  }

  async run(plan: KVStepPlan): Promise<SampledToken[]> {
    for (const request of plan.requests) this.#write(request);
    const reads = plan.requests.filter(({ samples }) => samples).map((request) => this.#read(request));
    this.onSubmitted(plan);
    return Promise.all(reads);
  }

  #write({ tokens, start, end, blockTable }: PlannedRequest): void {
    const { blockTokens, rowBytes } = layout;
    const { slabs, entries, views } = blockTable;
    for (let at = start; at < end; at++, this.written++) {
      const block = Math.floor(at / blockTokens);
      const row = new Uint32Array(rowBytes / 4).fill(tokens[at]);
      const inBlock = (at % blockTokens) * rowBytes;
      if (views !== undefined) views[block].set(new Uint8Array(row.buffer), inBlock);
      else
        this.#kv.device.queue.writeBuffer(slabs[entries[2 * block]], entries[2 * block + 1] + inBlock, row);
    }
  }

  /** What attention sees: the rows of all tokens up to the last, as the device has them. */
  async #read({ id, end, blockTable }: PlannedRequest): Promise<SampledToken> {
    const { blockTokens, rowBytes } = layout;
    const { slabs, entries, blocks, views } = blockTable;
    const bytes = blockTokens * rowBytes;
    if (views !== undefined) {
      const all = new Uint8Array(blocks * bytes);
      views.forEach((view, block) => void all.set(view.subarray(0, bytes), block * bytes));
      return { id, token: nextToken(seenIn(new Uint32Array(all.buffer), end)) };
    }
    const { device } = this.#kv;
    const read = device.createBuffer({ size: blocks * bytes, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    for (let block = 0; block < blocks; block++) {
      const [slab, offset] = entries.subarray(2 * block, 2 * block + 2);
      encoder.copyBufferToBuffer(slabs[slab], offset, read, block * bytes, bytes);
    }
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(MAP_READ);
    const words = new Uint32Array(read.getMappedRange().slice(0));
    read.destroy();
    return { id, token: nextToken(seenIn(words, end)) };
  }
}

/** The tokens whose rows lie one behind the other. */
function seenIn(words: Uint32Array, end: number): number[] {
  return Array.from({ length: end }, (_, at) => words[(at * layout.rowBytes) / 4]);
}
