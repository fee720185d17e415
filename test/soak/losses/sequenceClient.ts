/**
 * A client that does all that can be done with a sequence, in any order, as docs/guide/embedding.md says: it
 * writes what it was told to write and nothing else, and recovers, takes back or lets go what is interrupted,
 * or goes on as if nothing had happened, which must do no harm.
 */

import type { KVLayout, KVRuntime, KVSequence } from '../../../src/index.ts';
import { TierKVError } from '../../../src/index.ts';
import type { SeededRandom } from '../../../src/testing/index.ts';
import type { Oracle, Place } from './oracle.ts';

export interface Served {
  requests: number;
  /** How often each call ended in each way. */
  readonly ends: Map<string, number>;
  /** What was refused without a cause, and what never ended: a line each. */
  readonly refused: string[];
  readonly hung: string[];
}

/**
 * A call hangs where it has not ended and no call of any client has ended for this long. How long one call takes says nothing: on
 * a busy machine a step takes half a second, and a request of the scheduler some eighty of them.
 */
export const HANG_MS = 90_000;
const TOKENS_MAX = 150;
/** Refusals that have their cause in what others hold. */
const FULL = 'TKV_FULL';

class Hung extends Error {}

/** The sequence was let go, or is to be. */
class GaveUp extends Error {}

/** The end of a call; one that never ends is noted, and its client ends with it. */
export async function within<T>(served: Served, what: string, call: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const watch = (ended: number): void => {
      timer = setTimeout(() => {
        const now = endsOf(served);
        if (now !== ended && served.hung.length === 0) {
          watch(now);
          return;
        }
        served.hung.push(what);
        reject(new Hung(what));
      }, HANG_MS);
    };
    watch(endsOf(served));
  });
  try {
    return await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Calls that have ended. */
function endsOf({ ends }: Served): number {
  let sum = 0;
  for (const times of ends.values()) sum += times;
  return sum;
}

export function count(served: Served, end: string): void {
  served.ends.set(end, (served.ends.get(end) ?? 0) + 1);
}

export class SequenceClient {
  readonly #kv: KVRuntime;
  readonly #layout: KVLayout;
  readonly #oracle: Oracle;
  readonly #served: Served;
  readonly #random: SeededRandom;
  readonly #tenant: string;
  /** Called before each call of the runtime. */
  readonly #before: () => void;

  constructor(
    kv: KVRuntime,
    layout: KVLayout,
    oracle: Oracle,
    served: Served,
    random: SeededRandom,
    tenant: string,
    before: () => void,
  ) {
    this.#kv = kv;
    this.#layout = layout;
    this.#oracle = oracle;
    this.#served = served;
    this.#random = random;
    this.#tenant = tenant;
    this.#before = before;
  }

  /** One request, from `begin` to its end. */
  async ask(prompt: readonly number[]): Promise<void> {
    const random = this.#random;
    this.#served.requests++;
    const stop = new AbortController();
    const timer = random.chance(0.1) ? setTimeout(() => stop.abort(), random.below(200)) : undefined;
    const arriving = random.chance(0.4);
    try {
      const shareWaitMs = random.chance(0.5) ? 0 : 50;
      const options = { tenant: this.#tenant, wait: true, arriving, shareWaitMs, signal: stop.signal };
      const sequence = await this.#call('begin', () => this.#kv.begin(prompt, options));
      await this.#live(sequence, [...prompt], arriving, random.below(8));
    } catch (error) {
      if (stop.signal.aborted && error === stop.signal.reason) count(this.#served, 'begin: left');
      else if (!(error instanceof Hung)) this.#served.refused.push(`begin: ${String(error)}`);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Finds these tokens, and compares what is found. */
  async look(prompt: readonly number[]): Promise<void> {
    const sequence = await this.#call('begin', () =>
      this.#kv.begin(prompt, { tenant: this.#tenant, wait: true, shareWaitMs: 0 }),
    );
    await this.#compare(sequence, prompt, sequence.cachedTokens);
    this.#kv.release(sequence);
  }

  async #call<T>(what: string, call: () => Promise<T>): Promise<T> {
    this.#before();
    const end = await within(this.#served, what, call());
    count(this.#served, `${what}: ${typeof end === 'string' ? end : 'done'}`);
    return end;
  }

  /** What a sequence goes through, and its end. */
  async #live(sequence: KVSequence, tokens: number[], comes: boolean, steps: number): Promise<void> {
    try {
      if (!comes) this.#writeOpen(sequence, tokens, sequence.cachedTokens);
      else if (!(await this.#arrive(sequence, tokens))) await this.#recover(sequence, tokens);
      await this.#compare(sequence, tokens, tokens.length);
      for (let i = 0; i < steps; i++) await this.#act(sequence, tokens);
      if (this.#random.chance(0.7)) await this.#seal(sequence, tokens, this.#random.chance(0.5));
    } catch (error) {
      const isFull = error instanceof TierKVError && error.code === FULL;
      if (isFull) count(this.#served, 'let go: full');
      else if (error instanceof Hung) throw error;
      else if (!(error instanceof GaveUp)) this.#served.refused.push(String(error));
    } finally {
      if (this.#random.chance(0.8)) this.#kv.release(sequence);
      else this.#kv.cancel(sequence);
    }
  }

  async #act(sequence: KVSequence, tokens: number[]): Promise<void> {
    const random = this.#random;
    const kind = random.below(7);
    if (kind <= 2) await this.#grow(sequence, tokens, kind === 0);
    else if (kind === 3) await this.#truncate(sequence, tokens, random.below(tokens.length + 1));
    else if (kind === 4) await this.#seal(sequence, tokens, random.chance(0.5));
    else if (kind === 5) await this.#fork(sequence, tokens);
    else await this.#compare(sequence, tokens, tokens.length);
  }

  async #grow(sequence: KVSequence, tokens: number[], byAppend: boolean): Promise<void> {
    const random = this.#random;
    const fresh = Array.from({ length: 1 + random.below(random.chance(0.3) ? 30 : 3) }, () =>
      random.below(50),
    );
    if (tokens.length + fresh.length > TOKENS_MAX) return;
    const all = [...tokens, ...fresh];
    const end = byAppend
      ? await this.#call('append', () => this.#kv.append(sequence, all))
      : (await this.#call('step', () => this.#kv.step([{ sequence, tokens: fresh }])))[0];
    if (end === 'full') throw new GaveUp();
    if (end === 'done') {
      this.#write(sequence, all, tokens.length, all.length);
      tokens.push(...fresh);
      return;
    }
    // The tokens may be the sequence's or not: it says which it has.
    if (sequence.length > tokens.length) tokens.push(...fresh);
    if (random.chance(0.3)) return this.#truncate(sequence, tokens, random.below(tokens.length + 1));
    if (random.chance(0.4)) return this.#seal(sequence, tokens, random.chance(0.5));
    if (random.chance(0.7)) return this.#recover(sequence, tokens);
    throw new GaveUp();
  }

  async #truncate(sequence: KVSequence, tokens: number[], to: number): Promise<void> {
    const end = await this.#call('truncate', () => this.#kv.truncate(sequence, to));
    tokens.length = Math.min(tokens.length, sequence.length);
    if (end === 'interrupted') await this.#recover(sequence, tokens);
  }

  /** As docs/guide/embedding.md shows it. */
  async #seal(sequence: KVSequence, tokens: number[], tail: boolean): Promise<void> {
    while ((await this.#call('seal', () => this.#kv.seal(sequence, { tail }))) === 'interrupted') {
      if (this.#random.chance(0.1)) throw new GaveUp();
      await this.#recover(sequence, tokens);
    }
  }

  async #fork(sequence: KVSequence, tokens: readonly number[]): Promise<void> {
    const at = this.#random.below(tokens.length + 1);
    const forked = await this.#call('fork', () => this.#kv.fork(sequence, at));
    if (forked === 'interrupted') return this.#recover(sequence, [...tokens]);
    await this.#branch(forked, tokens.slice(0, at));
  }

  async #branch(forked: KVSequence, tokens: number[]): Promise<void> {
    try {
      await this.#compare(forked, tokens, tokens.length);
      for (let i = this.#random.below(4); i > 0; i--) {
        if (this.#random.chance(0.6)) await this.#grow(forked, tokens, this.#random.chance(0.5));
        else await this.#compare(forked, tokens, tokens.length);
      }
      if (this.#random.chance(0.5)) await this.#seal(forked, tokens, this.#random.chance(0.5));
    } catch (error) {
      if (!(error instanceof GaveUp)) throw error;
    } finally {
      this.#kv.release(forked);
    }
  }

  /** Some recoveries are called off in the middle, and the caller goes on all the same. */
  async #recover(sequence: KVSequence, tokens: readonly number[]): Promise<void> {
    const random = this.#random;
    for (;;) {
      const stop = new AbortController();
      const timer = random.chance(0.15) ? setTimeout(() => stop.abort(), random.below(20)) : undefined;
      try {
        const { signal } = stop;
        const open = await this.#call('recover', () => this.#kv.recover(sequence, { signal }));
        for (const block of open) this.#writeBlock(sequence, tokens, block, 0);
        return;
      } catch (error) {
        if (!stop.signal.aborted || error !== stop.signal.reason) throw error;
        count(this.#served, 'recover: left');
        if (random.chance(0.3)) throw new GaveUp();
        if (random.chance(0.5)) await this.#call('seal', () => this.#kv.seal(sequence, { tail: true }));
      } finally {
        clearTimeout(timer);
      }
    }
  }

  /** Prefill by parts, or layer by layer. @returns whether all of it was handed out and written */
  async #arrive(sequence: KVSequence, tokens: number[]): Promise<boolean> {
    const random = this.#random;
    const groups = sequence.groups.length;
    // nothing was written yet, so nothing may be sealed
    if (random.chance(0.15)) await this.#seal(sequence, tokens, false);
    if (groups > 1) {
      for (let group = 0; group < groups; group++) {
        const layers = await this.#call('readyLayers', () => this.#kv.readyLayers(sequence, group));
        if (layers === 'interrupted') return false;
        const from = sequence.cachedTokens;
        for (const block of layers.open) this.#writeBlock(sequence, tokens, block, from, group);
        if (random.chance(0.1)) await this.#seal(sequence, tokens, true);
      }
      return true;
    }
    for (;;) {
      const maxTokens = 1 + random.below(60);
      const part = await this.#call('nextPart', () => this.#kv.nextPart(sequence, { maxTokens }));
      if (part === null) return true;
      if (part === 'interrupted') return false;
      this.#write(sequence, tokens, part.start, part.end);
      if (random.chance(0.1)) {
        const end = await this.#call('seal', () => this.#kv.seal(sequence));
        if (end === 'interrupted' && random.chance(0.5)) return false;
      }
    }
  }

  #writeOpen(sequence: KVSequence, tokens: readonly number[], from: number): void {
    for (const { index, group } of this.#kv.openBlocks(sequence)) {
      this.#writeBlock(sequence, tokens, index, from, group);
    }
  }

  /** The rows of a block from token `from` on, in one layer group or in all. */
  #writeBlock(
    sequence: KVSequence,
    tokens: readonly number[],
    block: number,
    from: number,
    only?: number,
  ): void {
    const { blockTokens } = this.#layout;
    const start = Math.max(block * blockTokens, from);
    const end = Math.min(tokens.length, (block + 1) * blockTokens);
    for (let group = 0; group < sequence.groups.length; group++) {
      if (only !== undefined && only !== group) continue;
      const place = this.#openPlace(sequence, block, group);
      if (place !== undefined) this.#oracle.write(this.#tenant, tokens, start, end, place, group);
    }
  }

  /** The rows of tokens [from, to), in all layer groups. */
  #write(sequence: KVSequence, tokens: readonly number[], from: number, to: number): void {
    const { blockTokens } = this.#layout;
    for (let block = Math.floor(from / blockTokens); block * blockTokens < to; block++) {
      const start = Math.max(from, block * blockTokens);
      const end = Math.min(to, (block + 1) * blockTokens);
      for (let group = 0; group < sequence.groups.length; group++) {
        const place = this.#openPlace(sequence, block, group);
        if (place !== undefined) this.#oracle.write(this.#tenant, tokens, start, end, place, group);
      }
    }
  }

  /** Where an open block lies; undefined when a loss came between the call and this. */
  #openPlace(sequence: KVSequence, block: number, group: number): Place | undefined {
    const isOpen = this.#kv.manager.openBlock(sequence.groups[group].table, block) !== undefined;
    return isOpen ? this.#kv.slot(sequence, block, group) : undefined;
  }

  async #compare(sequence: KVSequence, tokens: readonly number[], tokenCount: number): Promise<void> {
    const blocks = Math.ceil(tokenCount / this.#layout.blockTokens);
    for (let group = 0; group < sequence.groups.length; group++) {
      const places: Place[] = [];
      for (let i = 0; i < blocks; i++) {
        if (this.#kv.manager.readableBlock(sequence.groups[group].table, i) === undefined) return;
        places.push(this.#kv.slot(sequence, i, group));
      }
      const who = `a sequence of ${tokens.length} tokens, ${sequence.cachedTokens} cached, group ${group}`;
      await this.#oracle.compare(this.#tenant, tokens, tokenCount, places, who, group);
    }
  }
}
