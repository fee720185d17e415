/** Without a terminal at stderr a long command writes a line a minute, by a clock of its own. */

import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { noticeLine, type ProgressClock, startProgressBar } from '../../../src/io/printing/progress.ts';

class TestClock implements ProgressClock {
  ms = 0;
  #acts: { everyMs: number; nextMs: number; act: () => void }[] = [];

  now(): number {
    return this.ms;
  }

  every(everyMs: number, act: () => void): () => void {
    const entry = { everyMs, nextMs: this.ms + everyMs, act };
    this.#acts.push(entry);
    return () => {
      this.#acts = this.#acts.filter((each) => each !== entry);
    };
  }

  /** Time goes on, and timers fire. */
  pass(ms: number): void {
    const end = this.ms + ms;
    for (;;) {
      const [next] = this.#acts.filter(({ nextMs }) => nextMs <= end).sort((a, b) => a.nextMs - b.nextMs);
      if (next === undefined) break;
      this.ms = next.nextMs;
      next.nextMs += next.everyMs;
      next.act();
    }
    this.ms = end;
  }

  /** Time goes on while the thread is busy: no timer fires. */
  block(ms: number): void {
    this.ms += ms;
  }
}

function log(): { stream: PassThrough; lines: () => string[] } {
  const stream = new PassThrough();
  const seen: string[] = [];
  stream.on('data', (chunk: Buffer) => seen.push(chunk.toString()));
  return { stream, lines: () => seen.join('').split('\n').slice(0, -1) };
}

it('a line a minute, also while one long thing is waited for, and none after the end', () => {
  const clock = new TestClock();
  const { stream, lines } = log();
  const bar = startProgressBar('simulations', stream, clock);
  clock.pass(59_000);
  bar.update({ share: 0.25, done: 16, note: 'presets' });
  expect(lines()).toEqual([]);
  clock.pass(121_000);
  expect(lines()).toEqual([
    '1 min 0 s | 25% | 16 simulations, 3 min 0 s left | presets',
    '2 min 0 s | 25% | 16 simulations, 6 min 0 s left | presets',
    '3 min 0 s | 25% | 16 simulations, 9 min 0 s left | presets',
  ]);
  bar[Symbol.dispose]();
  clock.pass(600_000);
  expect(lines()).toHaveLength(3);
});

it('a busy thread, whose timers do not fire, writes its line with the next step', () => {
  const clock = new TestClock();
  const { stream, lines } = log();
  using bar = startProgressBar('requests', stream, clock);
  for (let i = 1; i <= 20; i++) {
    clock.block(10_000);
    bar.update({ share: 0, done: 100 * i });
  }
  expect(lines()).toEqual([
    '1 min 0 s | 600 requests',
    '2 min 0 s | 1,200 requests',
    '3 min 0 s | 1,800 requests',
  ]);
});

it('work that goes on evenly has a time left that falls', () => {
  const clock = new TestClock();
  const { stream, lines } = log();
  using bar = startProgressBar('requests', stream, clock);
  for (let i = 1; i <= 10; i++) {
    clock.block(60_000);
    bar.update({ share: i / 10, done: i });
  }
  const left = lines().map((line) => /, (.*) left/.exec(line)?.[1]);
  expect(left).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1].map((minutes) => `${minutes} min 0 s`).concat('0.0 s'));
});

it('the name of the program stands before a notice once, in whichever part of the program it was put there', () => {
  expect(noticeLine('running on a device')).toBe('tierkv: running on a device');
  expect(noticeLine('tierkv: running on a device')).toBe('tierkv: running on a device');
});
