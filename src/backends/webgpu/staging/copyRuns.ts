/** Copies between staging memory and slabs, where neighbours on both sides become one command. */

export class CopyRuns {
  readonly #slabs: number[] = [];
  readonly #slabOffsets: number[] = [];
  readonly #stagingOffsets: number[] = [];
  readonly #bytes: number[] = [];

  add(slab: number, slabOffset: number, stagingOffset: number, bytes: number): void {
    const last = this.#slabs.length - 1;
    if (
      last >= 0 &&
      this.#slabs[last] === slab &&
      this.#slabOffsets[last] + this.#bytes[last] === slabOffset &&
      this.#stagingOffsets[last] + this.#bytes[last] === stagingOffset
    ) {
      this.#bytes[last] += bytes;
      return;
    }
    this.#slabs.push(slab);
    this.#slabOffsets.push(slabOffset);
    this.#stagingOffsets.push(stagingOffset);
    this.#bytes.push(bytes);
  }

  encodeFromStaging(encoder: GPUCommandEncoder, staging: GPUBuffer, slabs: readonly GPUBuffer[]): void {
    this.#bytes.forEach((bytes, i) => {
      const slab = slabs[this.#slabs[i]];
      encoder.copyBufferToBuffer(staging, this.#stagingOffsets[i], slab, this.#slabOffsets[i], bytes);
    });
  }

  encodeToStaging(encoder: GPUCommandEncoder, slabs: readonly GPUBuffer[], staging: GPUBuffer): void {
    this.#bytes.forEach((bytes, i) => {
      const slab = slabs[this.#slabs[i]];
      encoder.copyBufferToBuffer(slab, this.#slabOffsets[i], staging, this.#stagingOffsets[i], bytes);
    });
  }
}
