/**
 * Random calls of the public API on a live runtime, valid and not: only documented results and
 * `TierKVError`s, the books are right throughout, and nothing is held at rest.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../src/embed/index.ts';
import { TierKVError } from '../../src/runtime/index.ts';
import { SeededRandom, testSeed } from '../../src/testing/seededRandom.ts';
import { blocks, openRuntime } from './liveRuntime.ts';

const CALLS = Number(process.env.TIERKV_CALLS ?? 1500);
const bad: readonly unknown[] = [
  undefined,
  null,
  -1,
  1.5,
  Number.NaN,
  1e15,
  '7',
  {},
  [],
  { length: 1e15 },
  [Number.NaN],
  [2 ** 33],
  'ten',
];

class Caller {
  readonly #kv: KVRuntime;
  readonly #random: SeededRandom;
  readonly #live: KVSequence[] = [];
  readonly #ended: KVSequence[] = [];
  /** Calls that wait for others to let go. */
  readonly waiting: Promise<unknown>[] = [];

  constructor(kv: KVRuntime, random: SeededRandom) {
    this.#kv = kv;
    this.#random = random;
  }

  async call(): Promise<string> {
    const random = this.#random;
    const kv = this.#kv;
    const roll = random.below(20);
    const sequence = this.#pick();
    if (roll < 5 || sequence === undefined) return this.#begin();
    if (roll === 5)
      return this.#said(['done', 'interrupted'], kv.append(sequence, this.#maybeBad(this.#longer(sequence))));
    if (roll === 6)
      return this.#said(['done', 'interrupted'], kv.seal(sequence, { tail: random.chance(0.3) }));
    if (roll === 7) {
      const entries = [{ sequence, tokens: this.#maybeBad([random.below(50)]) }];
      const ends = await kv.step(entries);
      expect(['done', 'interrupted', 'full']).toContain(ends[0]);
      return 'step';
    }
    if (roll === 8) {
      const forked = await kv.fork(sequence, this.#maybeBad(random.below(sequence.length + 1)));
      if (forked !== 'interrupted') this.#live.push(forked);
      return 'fork';
    }
    if (roll === 9)
      return this.#said(
        ['done', 'interrupted'],
        kv.truncate(sequence, this.#maybeBad(random.below(sequence.length + 1))),
      );
    if (roll < 14) return this.#end(sequence);
    if (roll === 14) kv.lookup(this.#maybeBad(this.#tokens()), { tenant: this.#maybeBad('a') });
    else if (roll === 15) kv.prefetch(this.#maybeBad(this.#tokens()), { tenant: 'a' });
    else if (roll === 16)
      kv.slot(sequence, this.#maybeBad(random.below(sequence.blocks + 1)), random.chance(0.1) ? 3 : 0);
    else if (roll === 17) kv.deviceBlockTable(sequence);
    else if (roll === 18) kv.manager.evict(random.below(2), random.below(4), kv.nowUs());
    else {
      for (const { index } of kv.openBlocks(sequence)) {
        const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
        kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(1));
      }
      expect(kv.room.blocks).toBeGreaterThanOrEqual(0);
      kv.metrics();
    }
    return 'looked';
  }

  end(): void {
    for (const sequence of this.#live.splice(0)) this.#kv.release(sequence);
  }

  #begin(): Promise<string> | string {
    const random = this.#random;
    const wait = random.chance(0.3);
    const signal = random.chance(0.1) ? AbortSignal.timeout(random.below(5)) : undefined;
    const begun = this.#kv
      .begin(this.#maybeBad(this.#tokens()), {
        tenant: this.#maybeBad(random.chance(0.5) ? 'a' : 'b'),
        wait,
        priority: this.#maybeBad(random.below(3)),
        shareWaitMs: random.chance(0.5) ? 0 : 5,
        signal,
      })
      .then((sequence) => void this.#live.push(sequence));
    if (!wait && random.chance(0.7)) return this.#settle(begun);
    this.waiting.push(this.#settle(begun));
    return 'begun';
  }

  async #settle(work: Promise<unknown>): Promise<string> {
    await work.catch((error: unknown) => expectDocumented(error));
    return 'begun';
  }

  async #said(words: readonly string[], work: Promise<string>): Promise<string> {
    const word = await work;
    expect(words).toContain(word);
    return word;
  }

  #end(sequence: KVSequence): string {
    const ended = this.#random.chance(0.5) ? 'release' : 'cancel';
    this.#kv[ended](sequence);
    const at = this.#live.indexOf(sequence);
    if (at !== -1) this.#live.splice(at, 1);
    this.#ended.push(sequence);
    return ended;
  }

  /** Mostly one that lives, now and then one that has ended. */
  #pick(): KVSequence | undefined {
    const from = this.#random.chance(0.05) && this.#ended.length > 0 ? this.#ended : this.#live;
    return from[this.#random.below(Math.max(1, from.length))];
  }

  #tokens(): number[] {
    const first = this.#random.below(4) * 1000;
    return Array.from({ length: 1 + this.#random.below(90) }, (_, i) => first + i);
  }

  #longer(sequence: KVSequence): number[] {
    const known = Array.from(sequence.tokens.words.subarray(0, sequence.length));
    if (this.#random.chance(0.1) && known.length > 0) known[this.#random.below(known.length)]++;
    return [...known, ...Array.from({ length: this.#random.below(20) }, () => this.#random.below(9))];
  }

  #maybeBad<T>(good: T): T {
    return this.#random.chance(0.06) ? (bad[this.#random.below(bad.length)] as T) : good;
  }
}

function expectDocumented(error: unknown): void {
  if (error instanceof TierKVError) {
    expect(error.code).toMatch(/^TKV_(INPUT|CONFIG|CAPACITY|FULL|STATE|UNKNOWN_ID)$/);
    return;
  }
  expect(error, 'a signal').toMatchObject({ name: 'TimeoutError' });
}

const seed = testSeed(20262);
it(`${CALLS} calls leave nothing behind and end in nothing that is not documented (seed ${seed})`, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-calls-'));
  try {
    await using kv = await openRuntime({
      hbmBytes: blocks(24),
      ddrBytes: blocks(24),
      nvme: { dir, bytes: blocks(64) },
      leavingShare: 0.5,
    });
    const caller = new Caller(kv, new SeededRandom(seed));
    for (let i = 0; i < CALLS; i++) {
      try {
        await caller.call();
      } catch (error) {
        try {
          expectDocumented(error);
        } catch {
          throw new Error(`call ${i}, seed ${seed}: ${String(error)}`, { cause: error });
        }
      }
      kv.manager.checkIntegrity();
      if (i % 50 === 49) caller.end();
    }
    let waiting = true;
    const begun = Promise.all(caller.waiting).then(() => {
      waiting = false;
    });
    while (waiting) {
      caller.end(); // whoever still waits gets the room of those that end here
      await Promise.race([begun, new Promise((resolve) => setTimeout(resolve, 5))]);
    }
    caller.end();
    await kv.idle();
    kv.manager.checkIntegrity();
    expect(kv.manager.openSequences).toBe(0);
    for (const position of [0, 1, 2]) {
      const { heldBytes, residentBytes, cachedBytes, slots } = kv.manager.usage(position);
      expect([heldBytes, residentBytes - cachedBytes, slots.draining + slots.open + slots.filling]).toEqual([
        0, 0, 0,
      ]);
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
