/**
 * The near end of the event queue: a four-ary heap ordered by (time, order), one element four doubles in a
 * flat array.
 */

/** Doubles an event takes: time, order, type and first argument packed, second argument. */
export const STRIDE = 4;
export const TIME = 0;
export const ORDER = 1;
export const TYPE_AND_A = 2;
export const B = 3;

export class EventHeap {
  /** Elements in heap order; the root is at 0. Read only. */
  slots: Float64Array = new Float64Array(64 * STRIDE);
  size = 0;

  push(timeUs: number, order: number, typeAndA: number, b: number): void {
    if ((this.size + 1) * STRIDE > this.slots.length) {
      const grown = new Float64Array(this.slots.length * 2);
      grown.set(this.slots);
      this.slots = grown;
    }
    const slots = this.slots;
    let hole = this.size++ * STRIDE;
    while (hole > 0) {
      const parent = (((hole >> 2) - 1) >> 2) * STRIDE;
      const parentTime = slots[parent];
      if (parentTime < timeUs || (parentTime === timeUs && slots[parent + ORDER] < order)) break;
      slots[hole] = parentTime;
      slots[hole + ORDER] = slots[parent + ORDER];
      slots[hole + TYPE_AND_A] = slots[parent + TYPE_AND_A];
      slots[hole + B] = slots[parent + B];
      hole = parent;
    }
    slots[hole] = timeUs;
    slots[hole + ORDER] = order;
    slots[hole + TYPE_AND_A] = typeAndA;
    slots[hole + B] = b;
  }

  /** Drops the root. */
  dropRoot(): void {
    const slots = this.slots;
    const last = --this.size * STRIDE;
    if (last === 0) return;
    const time = slots[last];
    const order = slots[last + ORDER];
    let hole = 0;
    for (;;) {
      const first = hole * 4 + STRIDE;
      if (first >= last) break;
      let least = first;
      let leastTime = slots[first];
      const end = Math.min(first + 4 * STRIDE, last);
      for (let child = first + STRIDE; child < end; child += STRIDE) {
        const childTime = slots[child];
        if (
          childTime < leastTime ||
          (childTime === leastTime && slots[child + ORDER] < slots[least + ORDER])
        ) {
          least = child;
          leastTime = childTime;
        }
      }
      if (time < leastTime || (time === leastTime && order < slots[least + ORDER])) break;
      slots[hole] = leastTime;
      slots[hole + ORDER] = slots[least + ORDER];
      slots[hole + TYPE_AND_A] = slots[least + TYPE_AND_A];
      slots[hole + B] = slots[least + B];
      hole = least;
    }
    slots[hole] = time;
    slots[hole + ORDER] = order;
    slots[hole + TYPE_AND_A] = slots[last + TYPE_AND_A];
    slots[hole + B] = slots[last + B];
  }
}
