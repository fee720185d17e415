/**
 * Random calls of the public API on a live runtime, valid and not, with every argument spoiled now and then
 * and a device that is lost now and then. After each call the books are audited; in the end nothing may be
 * held. A call may end in what its documentation says and in nothing else.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KVRuntime, KVSequence } from '../../src/index.ts';
import { TierKVError } from '../../src/runtime/index.ts';
import { SeededRandom } from '../../src/testing/patternItems.ts';
import { held } from '../soak/judging/rest.ts';
import { blocks, openRuntime } from './liveRuntime.ts';

export interface AnyCallsReport {
  calls: number;
  /** How often each call was made, and how often each end and error code came of it. */
  readonly ends: Map<string, number>;
  devicesLost: number;
}

const BAD: readonly unknown[] = [
  undefined,
  null,
  -1,
  1.5,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  1e15,
  '7',
  'ten',
  '',
  true,
  {},
  [],
  { length: 1e15 },
  { length: -1 },
  [Number.NaN],
  [2 ** 33],
  [undefined],
  () => 7,
  Symbol('seven'),
  7n,
];
const BAD_SHARE = 0.05;
/** Calls between two losses of the device. */
const CALLS_PER_DEVICE = 400;
const CODES = /^TKV_(INPUT|CONFIG|CAPACITY|FULL|STATE|UNKNOWN_ID)$/;
const STEP_ENDS = ['done', 'interrupted'];

/** @throws Error naming the call and the seed, at the first end that is not documented */
export async function anyCalls(
  calls: number,
  seed: number,
  done?: (calls: number) => void,
): Promise<AnyCallsReport> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-calls-'));
  try {
    await using kv = await openRuntime({
      hbmBytes: blocks(24),
      ddrBytes: blocks(24),
      nvme: { dir, bytes: blocks(64) },
      leavingShare: 0.5,
    });
    const caller = new Caller(kv, new SeededRandom(seed));
    for (let i = 0; i < calls; i++) {
      await caller.call(`call ${i}, seed ${seed}`);
      kv.manager.checkIntegrity();
      if (i % 100 === 99) caller.end();
      if (i % CALLS_PER_DEVICE === CALLS_PER_DEVICE / 2) kv.device.destroy();
      done?.(i + 1);
    }
    await caller.rest();
    const left = held(kv);
    if (left.length > 0) throw new Error(`seed ${seed}: at rest, ${left.join(', ')}`);
    return { calls, ends: caller.ends, devicesLost: kv.devicesLost };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

type Call = (sequence: KVSequence | undefined) => unknown;

class Caller {
  readonly ends: Map<string, number> = new Map();
  readonly #kv: KVRuntime;
  readonly #random: SeededRandom;
  readonly #live: KVSequence[] = [];
  readonly #ended: KVSequence[] = [];
  /** Calls that wait for others to let go. */
  readonly #waiting: Promise<unknown>[] = [];
  #problem: unknown;

  constructor(kv: KVRuntime, random: SeededRandom) {
    this.#kv = kv;
    this.#random = random;
  }

  async call(where: string): Promise<void> {
    // without a live sequence there is little to call but begin
    const begins = this.#live.length === 0 && this.#random.chance(0.8);
    const [name, call]: [string, Call] = begins ? ['begin', () => this.#begin()] : this.#choose();
    try {
      const said = await call(this.#pick());
      this.#count(`${name}: ${typeof said === 'string' ? said : 'done'}`);
    } catch (error) {
      this.#documented(name, error);
    }
    if (this.#problem !== undefined) {
      throw new Error(`${where} (${name}): ${String(this.#problem)}`, { cause: this.#problem });
    }
  }

  end(): void {
    for (const sequence of this.#live.splice(0)) this.#kv.release(sequence);
  }

  /** Releases all sequences, until no request waits for room. */
  async rest(): Promise<void> {
    let waiting = true;
    const begun = Promise.all(this.#waiting).then(() => {
      waiting = false;
    });
    while (waiting) {
      this.end();
      await Promise.race([begun, new Promise((resolve) => setTimeout(resolve, 5))]);
    }
    this.end();
    while (this.#kv.describe().runtime.devicePresent !== true) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await this.#kv.idle();
    this.#kv.manager.checkIntegrity();
  }

  #choose(): [string, Call] {
    const kv = this.#kv;
    const random = this.#random;
    const sequenceCalls: [string, number, (sequence: KVSequence) => unknown][] = [
      ['append', 2, (s) => this.#said(STEP_ENDS, kv.append(s, this.#spoiled(this.#longer(s))))],
      ['seal', 2, (s) => this.#said(STEP_ENDS, kv.seal(s, this.#spoiled({ tail: random.chance(0.4) })))],
      ['step', 4, (s) => this.#step(s)],
      ['nextPart', 3, (s) => this.#part(s)],
      ['fork', 2, (s) => this.#fork(s)],
      ['truncate', 2, (s) => this.#said(STEP_ENDS, kv.truncate(s, this.#spoiled(this.#upTo(s))))],
      ['recover', 1, async (s) => void (await kv.recover(s, this.#spoiled({})))],
      ['release', 3, (s) => this.#release(s)],
      ['cancel', 2, (s) => this.#gone(s, () => kv.cancel(s))],
      ['slot', 1, (s) => void kv.slot(s, this.#spoiled(this.#upTo(s)), this.#spoiled(0))],
      ['deviceBlockTable', 1, (s) => void kv.deviceBlockTable(s, this.#spoiled(0))],
      ['write', 3, (s) => this.#write(s)],
    ];
    const others: [string, number, Call][] = [
      ['begin', 8, () => this.#begin()],
      [
        'lookup',
        1,
        () => void kv.lookup(this.#spoiled(this.#tokens()), this.#spoiled({ tenant: this.#spoiled('a') })),
      ],
      ['prefetch', 1, () => void kv.prefetch(this.#spoiled(this.#tokens()), this.#spoiled({ tenant: 'a' }))],
      ['evict', 1, () => void kv.manager.evict(random.below(3), random.below(4), kv.nowUs())],
      ['requestQueue', 1, () => this.#queue()],
      ['look', 1, () => this.#look()],
    ];
    const all = [
      ...others,
      ...sequenceCalls.map(([name, weight, call]): [string, number, Call] => [
        name,
        weight,
        // what is passed for a sequence may be anything
        (sequence) => call(this.#spoiled(sequence) as KVSequence),
      ]),
    ];
    let at = (random.word() / 2 ** 32) * all.reduce((sum, [, weight]) => sum + weight, 0);
    const found = all.find(([, weight]) => {
      at -= weight;
      return at < 0;
    });
    const [name, , call] = found ?? all[0];
    return [name, call];
  }

  #begin(): Promise<string> | string {
    const random = this.#random;
    const wait = random.chance(0.3);
    const signal = random.chance(0.1) ? AbortSignal.timeout(random.below(5)) : undefined;
    const options = {
      tenant: this.#spoiled(random.chance(0.5) ? 'a' : 'b'),
      wait: this.#spoiled(wait),
      priority: this.#spoiled(random.below(3)),
      shareWaitMs: this.#spoiled(random.chance(0.5) ? 0 : 5),
      signal: this.#spoiled(signal),
      arriving: this.#spoiled(random.chance(0.4)),
      retention: random.chance(0.2) ? this.#hint() : undefined,
    };
    const begun = this.#kv
      .begin(this.#spoiled(this.#tokens()), this.#spoiled(options))
      .then((sequence) => void this.#live.push(sequence));
    const settled = begun.catch((error: unknown) => this.#documented('begin', error));
    if (options.wait !== true && random.chance(0.7)) return settled.then(() => 'done');
    this.#waiting.push(settled);
    return 'not awaited';
  }

  async #step(sequence: KVSequence): Promise<string> {
    const random = this.#random;
    const others = this.#live.filter((other) => other !== sequence && random.chance(0.2)).slice(0, 3);
    const entries = [sequence, ...others].map((one) => ({
      sequence: one,
      tokens: this.#spoiled(
        Array.from({ length: 1 + random.below(random.chance(0.2) ? 40 : 1) }, () => random.below(50)),
      ),
    }));
    const ends = await this.#kv.step(this.#spoiled(entries));
    for (const end of ends) await this.#said([...STEP_ENDS, 'full'], end);
    return ends.join(' ');
  }

  async #part(sequence: KVSequence): Promise<string> {
    const maxTokens = this.#spoiled(1 + this.#random.below(40));
    const options = this.#spoiled<{ maxTokens?: number } | undefined>({ maxTokens });
    const part = await this.#kv.nextPart(sequence, options);
    if (part === null || part === 'interrupted') return part ?? 'all';
    const { start, end } = part;
    const isRight = start < end && end <= sequence.length && end - start <= (options?.maxTokens ?? 512);
    if (!isRight) throw new Error(`the part is ${start} to ${end} of ${sequence.length}`);
    if (sequence.cachedTokens < 0) throw new Error(`${sequence.cachedTokens} tokens are cached`);
    return 'part';
  }

  async #fork(sequence: KVSequence): Promise<string> {
    const forked = await this.#kv.fork(sequence, this.#spoiled(this.#upTo(sequence)));
    if (forked === 'interrupted') return forked;
    this.#live.push(forked);
    return 'done';
  }

  #release(sequence: KVSequence): void {
    const options = this.#random.chance(0.3) ? { retention: this.#hint() } : {};
    this.#gone(sequence, () => this.#kv.release(sequence, this.#spoiled(options)));
  }

  /** A sequence that `end` did not end lives on. */
  #gone(sequence: KVSequence, end: () => void): void {
    end();
    const at = this.#live.indexOf(sequence);
    if (at !== -1) this.#live.splice(at, 1);
    this.#ended.push(sequence);
    if (this.#ended.length > 20) this.#ended.shift();
  }

  #write(sequence: KVSequence): void {
    const kv = this.#kv;
    for (const { index } of kv.openBlocks(sequence)) {
      const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
      kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(1));
    }
  }

  #queue(): void {
    const queue = this.#kv.requestQueue();
    const request = queue.add(this.#spoiled(this.#tokens()), this.#spoiled('a'));
    queue.lookup();
    queue.delete(this.#spoiled(request));
  }

  #look(): void {
    const kv = this.#kv;
    const { blocks: free, waiting } = kv.room;
    const { counters, gauges } = kv.metrics();
    for (const value of [free, waiting, ...Object.values(counters), ...Object.values(gauges)]) {
      if (!(value >= 0 && Number.isFinite(value))) throw new Error(`a figure is ${value}`);
    }
    kv.describe();
    void kv.events(this.#spoiled({ capacity: this.#spoiled(3) })).return?.();
  }

  #hint(): { priority: number; keepMs: number } {
    return { priority: this.#spoiled(this.#random.below(201) - 100), keepMs: this.#spoiled(50) };
  }

  async #said(words: readonly string[], work: Promise<string> | string): Promise<string> {
    const word = await work;
    if (!words.includes(word)) throw new Error(`it said ${word}`);
    return word;
  }

  #documented(name: string, error: unknown): void {
    if (error instanceof TierKVError && CODES.test(error.code)) {
      this.#count(`${name}: ${error.code}`);
    } else if (error instanceof DOMException && error.name === 'TimeoutError') {
      this.#count(`${name}: its signal`);
    } else this.#problem ??= error;
  }

  #count(end: string): void {
    this.ends.set(end, (this.ends.get(end) ?? 0) + 1);
  }

  /** Mostly one that lives, now and then one that has ended. */
  #pick(): KVSequence | undefined {
    const from = this.#random.chance(0.05) && this.#ended.length > 0 ? this.#ended : this.#live;
    return from[this.#random.below(Math.max(1, from.length))];
  }

  #tokens(): number[] {
    const first = this.#random.below(4) * 1000;
    const count = this.#random.chance(0.03) ? 500 : 1 + this.#random.below(90); // some never fit
    return Array.from({ length: count }, (_, i) => first + i);
  }

  #upTo(sequence: KVSequence): number {
    return this.#random.below((sequence?.length ?? 0) + 1);
  }

  #longer(sequence: KVSequence): number[] {
    if (!(sequence?.tokens?.words instanceof Uint32Array)) return [1, 2, 3];
    const known = Array.from(sequence.tokens.words.subarray(0, sequence.length));
    if (this.#random.chance(0.1) && known.length > 0) known[this.#random.below(known.length)]++;
    return [...known, ...Array.from({ length: this.#random.below(20) }, () => this.#random.below(9))];
  }

  /** Mostly what it was; now and then something that it may not be, or may be by luck. */
  #spoiled<T>(good: T): T {
    return this.#random.chance(BAD_SHARE) ? (BAD[this.#random.below(BAD.length)] as T) : good;
  }
}
