/**
 * The places of one dispatch batch, as columns of typed arrays that are filled again and again. `row` says where in the
 * results a place's two words are found; the kernels' packing assigns it, since places are sorted by slab there.
 */

export class PlaceList {
  readonly capacity: number;
  readonly slab: Uint32Array;
  readonly wordOffset: Uint32Array;
  readonly wordCount: Uint32Array;
  readonly seedLo: Uint32Array;
  readonly seedHi: Uint32Array;
  readonly row: Uint32Array;
  #count = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.slab = new Uint32Array(capacity);
    this.wordOffset = new Uint32Array(capacity);
    this.wordCount = new Uint32Array(capacity);
    this.seedLo = new Uint32Array(capacity);
    this.seedHi = new Uint32Array(capacity);
    this.row = new Uint32Array(capacity);
  }

  get count(): number {
    return this.#count;
  }

  get full(): boolean {
    return this.#count === this.capacity;
  }

  add(slab: number, offsetBytes: number, bytes: number, seedLo: number, seedHi: number): void {
    const index = this.#count++;
    this.slab[index] = slab;
    this.wordOffset[index] = offsetBytes / 4;
    this.wordCount[index] = bytes / 4;
    this.seedLo[index] = seedLo;
    this.seedHi[index] = seedHi;
  }

  clear(): void {
    this.#count = 0;
  }
}
