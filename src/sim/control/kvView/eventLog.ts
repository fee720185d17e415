/** Cache events that were sent and are not known to the router yet, in order. */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { PlainState } from '../policy.ts';

/** Numbers of an event: its time, and `instance * 2^8 + tier * 2 + stored`. */
const FIELDS = 2;
const INSTANCE_UNIT = 256;

export interface EventLogState {
  readonly events: Float64Array;
  readonly keys: Uint32Array;
}

export class EventLog {
  #events: Float64Array = new Float64Array(64 * FIELDS);
  #keys: Uint32Array = new Uint32Array(64 * wordsPerKey);
  #first = 0;
  #end = 0;

  get size(): number {
    return this.#end - this.#first;
  }

  add(timeUs: number, instance: number, tier: number, stored: boolean, key: Uint32Array): void {
    if (this.#end * FIELDS === this.#events.length) this.#makeRoom();
    this.#events[this.#end * FIELDS] = timeUs;
    this.#events[this.#end * FIELDS + 1] = instance * INSTANCE_UNIT + tier * 2 + (stored ? 1 : 0);
    for (let i = 0; i < wordsPerKey; i++) this.#keys[this.#end * wordsPerKey + i] = key[i];
    this.#end++;
  }

  /** Takes events out in order, up to those sent at `untilUs`. The words hold during the call. */
  take(
    untilUs: number,
    apply: (instance: number, tier: number, stored: boolean, words: Uint32Array, at: number) => void,
  ): void {
    while (this.#first < this.#end && this.#events[this.#first * FIELDS] <= untilUs) {
      const code = this.#events[this.#first * FIELDS + 1];
      const low = code % INSTANCE_UNIT;
      const at = this.#first++ * wordsPerKey;
      apply((code - low) / INSTANCE_UNIT, low >> 1, (low & 1) === 1, this.#keys, at);
    }
    if (this.#first === this.#end) {
      this.#first = 0;
      this.#end = 0;
    }
  }

  #makeRoom(): void {
    const size = this.size;
    const room = Math.max(64, size * 2);
    const events = new Float64Array(room * FIELDS);
    events.set(this.#events.subarray(this.#first * FIELDS, this.#end * FIELDS));
    const keys = new Uint32Array(room * wordsPerKey);
    keys.set(this.#keys.subarray(this.#first * wordsPerKey, this.#end * wordsPerKey));
    this.#events = events;
    this.#keys = keys;
    this.#first = 0;
    this.#end = size;
  }

  snapshot(): PlainState {
    return {
      events: this.#events.slice(this.#first * FIELDS, this.#end * FIELDS),
      keys: this.#keys.slice(this.#first * wordsPerKey, this.#end * wordsPerKey),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { events, keys } = state as unknown as EventLogState;
    this.#events = events.slice();
    this.#keys = keys.slice();
    this.#first = 0;
    this.#end = events.length / FIELDS;
  }
}
