/**
 * Where the tables of a module's functions lie in its memory. The module gives the room by its own `alloc`,
 * so that no two owners of memory meet.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import type { PlainState } from '../../control/policy.ts';
import type { InputTable } from '../calls/index.ts';
import { PolicyError } from '../policyError.ts';

/** Room for numbers in the memory, which a table may be shown in. */
export interface Place {
  address: number;
  numbers: number;
  table: InputTable | null;
}

export class Places {
  readonly #allocate: (bytes: number) => number;
  readonly #all: Place[] = [];
  #memory: WebAssembly.Memory;
  #words: Float64Array;

  /** @param allocate the module's own, within a budget */
  constructor(memory: WebAssembly.Memory, allocate: (bytes: number) => number) {
    this.#memory = memory;
    this.#allocate = allocate;
    this.#words = new Float64Array(memory.buffer);
  }

  /** A place without room yet. */
  add(): Place {
    const place: Place = { address: 0, numbers: 0, table: null };
    this.#all.push(place);
    return place;
  }

  /** Gives a place room for so many numbers. @throws PolicyError contract, and what `alloc` ends in */
  reserve(place: Place, numbers: number): Float64Array {
    const bytes = 8 * numbers;
    let address: number;
    try {
      address = this.#allocate(bytes) >>> 0;
    } finally {
      this.follow();
    }
    if (address % 8 !== 0 || address + bytes > 8 * this.#words.length) {
      const problem = `alloc(${bytes}) returns ${address}. Return the address of ${bytes} bytes of memory`;
      throw new PolicyError('contract', `${problem}, a multiple of 8`);
    }
    place.address = address;
    place.numbers = numbers;
    return this.view(place);
  }

  view({ address, numbers }: Place): Float64Array {
    return this.#words.subarray(address / 8, address / 8 + numbers);
  }

  /** Shows the tables where the memory is now, if it has moved. */
  follow(): void {
    // a buffer that was left behind has no bytes
    if (this.#words.length === 0) this.moveTo(this.#memory);
  }

  moveTo(memory: WebAssembly.Memory): void {
    this.#memory = memory;
    this.#words = new Float64Array(memory.buffer);
    for (const place of this.#all) if (place.table !== null) place.table.values = this.view(place);
  }

  snapshot(): PlainState {
    return this.#all.map(({ address, numbers }) => [address, numbers]);
  }

  /** @throws TKV_STATE where other functions were bound before the snapshot */
  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const places = state as readonly (readonly [number, number])[];
    if (places.length !== this.#all.length) {
      const remedy = 'Bind the same functions in the same order before restoring.';
      throw new TierKVError('TKV_STATE', `the state is of an instance with other functions. ${remedy}`);
    }
    places.forEach(([address, numbers], i) => {
      this.#all[i].address = address;
      this.#all[i].numbers = numbers;
    });
  }
}
