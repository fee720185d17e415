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

function slow(cores: Cores, times: number): void {
  for (let i = 0; i < times; i++) cores.look(130);
}

describe('the distance of cores', () => {
  it('is near until eight answers in a row were slow', () => {
    const cores = new Cores();
    expect(cores.distance.near).toBe(true);
    slow(cores, 7);
    cores.look(40);
    slow(cores, 7);
    expect(cores.distance.near).toBe(true);
    slow(cores, 1);
    expect(cores.distance.near).toBe(false);
  });

  it('is far until a quick answer comes', () => {
    const cores = new Cores();
    slow(cores, 8);
    cores.look(20);
    expect(cores.distance.near).toBe(true);
  });

  it('is found out anew after a while, and far again after three more slow answers', () => {
    const cores = new Cores();
    slow(cores, 8);
    cores.pass(49);
    slow(cores, 20);
    expect(cores.distance.near).toBe(false);
    for (let again = 0; again < 3; again++) {
      cores.pass(51);
      expect(cores.distance.near).toBe(true);
      slow(cores, 2);
      expect(cores.distance.near).toBe(true);
      slow(cores, 1);
      expect(cores.distance.near).toBe(false);
    }
  });

  it('is as hard to shake as ever once a quick answer came', () => {
    const cores = new Cores();
    slow(cores, 8);
    cores.pass(51);
    cores.look(20);
    slow(cores, 7);
    expect(cores.distance.near).toBe(true);
    slow(cores, 1);
    expect(cores.distance.near).toBe(false);
  });

  it('is not asked of little, and of any end within the buffer otherwise', () => {
    const cores = new Cores();
    slow(cores, 8);
    cores.look(20, MIB / 2 - 1);
    expect(cores.distance.near).toBe(false);
    for (const end of [MIB / 2, MIB / 2 + 1, MIB - 4, MIB]) cores.look(20, end);
    expect(cores.distance.near).toBe(true);
  });
});
