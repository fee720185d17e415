/** Running time, on clocks of the test. */

import { describe, expect, it } from 'vitest';
import { RunningClock, type Timers } from '../../src/backends/runningClock.ts';

/** A process whose time the test advances, running or stopped. */
class Process implements Timers {
  #nowMs = 1000;
  #timers: { dueMs: number; ring: () => void }[] = [];
  #behind: (() => void)[] = [];
  /** What has ended below and waits to be taken. */
  readonly ended: (() => void)[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  after(ms: number, ring: () => void): () => void {
    const timer = { dueMs: this.#nowMs + ms, ring };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((each) => each !== timer);
    };
  }

  behindEnds(ring: () => void): () => void {
    this.#behind.push(ring);
    return () => {
      this.#behind = this.#behind.filter((each) => each !== ring);
    };
  }

  get timers(): number {
    return this.#timers.length;
  }

  /** A turn of the event loop: timers, then ends, then what waits for those. */
  turn(): void {
    const due = this.#timers.filter(({ dueMs }) => dueMs <= this.#nowMs);
    this.#timers = this.#timers.filter(({ dueMs }) => dueMs > this.#nowMs);
    for (const { ring } of due) ring();
    for (const end of this.ended.splice(0)) end();
    for (const ring of this.#behind.splice(0)) ring();
  }

  run(ms: number): void {
    for (let i = 0; i < ms; i += 10) {
      this.#nowMs += 10;
      this.turn();
    }
  }

  stand(ms: number): void {
    this.#nowMs += ms;
  }
}

describe('running time', () => {
  it('is all time while nothing is under way, and no timer runs', () => {
    const process = new Process();
    const clock = new RunningClock(process);
    const before = clock.nowMs();
    process.stand(60_000);
    expect(clock.nowMs() - before).toBe(60_000);
    expect(process.timers).toBe(0);
  });

  it('leaves out the gap between two looks that are too far apart, and never decreases', () => {
    const process = new Process();
    const clock = new RunningClock(process);
    const unwatch = clock.watch();
    const before = clock.nowMs();
    process.run(1000);
    expect(clock.nowMs() - before).toBe(1000);
    process.stand(15_000);
    const after = clock.nowMs();
    expect(after - before).toBe(1050);
    process.turn();
    process.run(500);
    expect(clock.nowMs() - after).toBe(500);
    unwatch();
    unwatch();
    expect(process.timers).toBe(0);
    process.stand(15_000);
    expect(clock.nowMs() - after, 'nothing is under way').toBe(15_500);
  });

  it('counts two watches, each once', () => {
    const process = new Process();
    const clock = new RunningClock(process);
    const [first, second] = [clock.watch(), clock.watch()];
    first();
    first();
    process.stand(10_000);
    expect(clock.nowMs()).toBe(1050);
    second();
    expect(process.timers).toBe(0);
  });
});

describe('an alarm', () => {
  it('does not ring for time in which the process stood, and rings for time in which it ran', () => {
    const process = new Process();
    const clock = new RunningClock(process);
    let rings = 0;
    clock.alarm(1000, () => rings++);
    process.run(500);
    process.stand(20_000);
    process.turn();
    expect(rings).toBe(0);
    process.run(400);
    expect(rings).toBe(0);
    process.run(100);
    expect(rings).toBe(1);
    process.run(5000);
    expect([rings, process.timers]).toEqual([1, 0]);
  });

  it('rings behind what has ended while the process stood, which may call it off', () => {
    const process = new Process();
    const clock = new RunningClock(process);
    const rung: string[] = [];
    const callOff = clock.alarm(100, () => rung.push('off'));
    clock.alarm(100, () => rung.push('alarm'));
    process.run(90);
    process.ended.push(() => {
      rung.push('ended');
      callOff();
    });
    process.stand(1000);
    process.turn();
    expect(rung).toEqual(['ended', 'alarm']);
    expect(process.timers).toBe(0);
  });
});
