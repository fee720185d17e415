import { describe, expect, it } from 'vitest';
import { CacheDistance } from '../../../src/backends/webgpu/cacheDistance.ts';

const MIB = 1024 * 1024;
const LINES = 64;
const landed = new ArrayBuffer(MIB);

/** Cores whose lines take as long to read as a test says. */
class Cores {
  #nowMs = 1000;
  /** What the clock says next, before it says `nowMs` again. */
  readonly #readings: number[] = [];
  readonly distance: CacheDistance = new CacheDistance(() => this.#readings.shift() ?? this.#nowMs);

  look(nsPerLine: number, end: number = MIB): void {
    const beganMs = this.#nowMs;
    this.#nowMs += (nsPerLine * LINES) / 1e6;
    this.#readings.push(beganMs, this.#nowMs);
    this.distance.look(landed, end);
    this.#readings.length = 0;
  }

  pass(ms: number): void {
    this.#nowMs += ms;
  }
}

describe('the distance of cores', () => {
  it('is far until an answer was quick, and near from then on', () => {
    const cores = new Cores();
    expect(cores.distance.near).toBe(false);
    cores.look(130);
    expect(cores.distance.near).toBe(false);
    cores.look(20);
    expect(cores.distance.near).toBe(true);
  });

  it('takes eight slow answers in a row to be far again', () => {
    const cores = new Cores();
    cores.look(20);
    for (let i = 0; i < 7; i++) cores.look(130);
    expect(cores.distance.near).toBe(true);
    cores.look(40);
    for (let i = 0; i < 7; i++) cores.look(130);
    expect(cores.distance.near).toBe(true);
    cores.look(130);
    expect(cores.distance.near).toBe(false);
  });

  it('is not known any more half a second after the last quick answer', () => {
    const cores = new Cores();
    cores.look(20);
    cores.pass(499);
    expect(cores.distance.near).toBe(true);
    cores.look(130);
    cores.pass(2);
    expect(cores.distance.near).toBe(false);
    cores.look(20);
    expect(cores.distance.near).toBe(true);
  });

  it('is not asked of little, and of any end within the buffer otherwise', () => {
    const cores = new Cores();
    cores.look(20, MIB / 2 - 1);
    expect(cores.distance.near).toBe(false);
    for (const end of [MIB / 2, MIB / 2 + 1, MIB - 4, MIB]) cores.look(20, end);
    expect(cores.distance.near).toBe(true);
  });
});
