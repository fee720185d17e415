/**
 * Random calls to a policy of several tiers and size classes, in every order that the interface allows:
 * contents come and go, rows are used again, parents become unknown, replicas are held and let go, one
 * content has several replicas in one tier. The model knows who has entered, and checks each answer against
 * that.
 */

import type { EvictionChoice, EvictionPolicy } from '../../../src/runtime/eviction/evictionPolicy.ts';
import { makeEvictionPolicy, resolvePolicy } from '../../../src/runtime/eviction/registry.ts';
import { Random } from '../../fuzz/random.ts';

const CONTENTS = 40;
const SLOTS = [10, 14, 20];
const BASE = [0, 10, 24, 44];
const FREE = -1;

export class PolicyModel {
  readonly policy: EvictionPolicy;
  /** Every victim so far. */
  readonly decisions: number[] = [];
  readonly #random: Random;
  readonly #audited: boolean;
  readonly #classes: number;
  readonly #alive: boolean[] = new Array(CONTENTS).fill(false);
  readonly #parent: Int32Array = new Int32Array(CONTENTS).fill(-1);
  readonly #keys: Uint32Array = new Uint32Array(CONTENTS * 4);
  readonly #owner: Uint16Array = new Uint16Array(CONTENTS);
  readonly #tokens: Uint16Array = new Uint16Array(CONTENTS);
  /** By replica: its content or FREE, its size class, whether it has entered, uses of its slot. */
  readonly #content: Int32Array = new Int32Array(BASE[3]).fill(FREE);
  readonly #sizeClass: Uint8Array = new Uint8Array(BASE[3]);
  readonly #entered: Uint8Array = new Uint8Array(BASE[3]);
  readonly #generation: Uint32Array = new Uint32Array(BASE[3]);
  readonly #resident: Float64Array = new Float64Array(SLOTS.length);
  #visits = 0;
  #nowUs = 0;

  /** @param audited whether to check everything after each step, which must not change what follows */
  constructor(choice: EvictionChoice, seed: number, audited: boolean) {
    this.#random = new Random(seed);
    this.#audited = audited;
    const unitBytes = this.#random.chance(0.5) ? [4] : [4, 1];
    this.#classes = unitBytes.length;
    this.policy = makeEvictionPolicy(resolvePolicy(choice), {
      tiers: SLOTS.length,
      whole: false,
      base: BASE,
      unitBytes,
      capacityBytes: SLOTS.map((slots) => slots * 4),
      residentBytes: this.#resident,
      contents: CONTENTS,
      nowUs: () => this.#nowUs,
      generationOf: (replica) => this.#generation[replica],
      parentOf: (content) => this.#parent[content],
      keys: this.#keys,
      tokens: this.#tokens,
      owner: this.#owner,
    });
  }

  step(): void {
    const random = this.#random;
    if (random.chance(0.2)) this.#nowUs += random.below(random.pick([10, 1e6, 60e6, 3e9]));
    const roll = random.below(100);
    if (roll < 15) this.#create();
    else if (roll < 35) this.#touch();
    else if (roll < 65) this.#enter();
    else if (roll < 80) this.#leave();
    else if (roll < 95) this.#evict();
    else this.#forget();
    if (this.#audited) this.#audit();
  }

  #create(): void {
    const row = this.#alive.indexOf(false);
    if (row === -1) return;
    const parents = this.#rowsWhere((content) => this.#alive[content]);
    this.#alive[row] = true;
    this.#parent[row] = parents.length > 0 && this.#random.chance(0.8) ? this.#random.pick(parents) : -1;
    this.#keys.set([this.#random.below(80), this.#parent[row] + 2, 3, 4], row * 4);
    // A key belongs to one content at a time.
    if (this.#rowsWhere((other) => this.#alive[other] && this.#sameKey(other, row)).length > 1) {
      this.#alive[row] = false;
      return;
    }
    this.#owner[row] = this.#random.below(3);
    this.#tokens[row] = this.#random.below(600);
  }

  #sameKey(a: number, b: number): boolean {
    return this.#keys[a * 4] === this.#keys[b * 4] && this.#keys[a * 4 + 1] === this.#keys[b * 4 + 1];
  }

  /** A request touches a chain, or goes on with one that others have interrupted. */
  #touch(): void {
    const ends = this.#rowsWhere((content) => this.#alive[content]);
    if (ends.length === 0) return;
    const chain: number[] = [];
    for (let at = this.#random.pick(ends); at >= 0 && chain.length < 20; at = this.#parent[at])
      chain.unshift(at);
    const again = this.#visits > 0 && this.#random.chance(0.2);
    const number = again ? this.#random.between(Math.max(1, this.#visits - 3), this.#visits) : ++this.#visits;
    const visit = { number, blocks: chain.length, matched: this.#random.below(chain.length + 1) };
    if (!again) this.policy.begin?.(visit);
    for (const content of chain) this.policy.touch(content, visit);
  }

  /** A replica is let go: one that was held, or a new one. */
  #enter(): void {
    const tier = this.#random.below(SLOTS.length);
    const contents = this.#rowsWhere((content) => this.#alive[content]);
    const slots = range(BASE[tier], BASE[tier + 1]).filter((replica) => this.#entered[replica] === 0);
    if (contents.length === 0 || slots.length === 0) return;
    const replica = this.#random.pick(slots);
    if (this.#content[replica] === FREE) {
      this.#content[replica] = this.#random.pick(contents);
      this.#sizeClass[replica] = this.#random.below(this.#classes);
      this.#generation[replica]++;
      this.#resident[tier] += 4;
    }
    this.#entered[replica] = 1;
    this.policy.enter(replica, tier, this.#sizeClass[replica], this.#content[replica]);
  }

  #leave(): void {
    const entered = range(0, BASE[3]).filter((replica) => this.#entered[replica] === 1);
    if (entered.length > 0) this.#takeOut(this.#random.pick(entered));
  }

  #takeOut(replica: number): void {
    this.#entered[replica] = 0;
    this.policy.leave(replica, tierOf(replica), this.#sizeClass[replica]);
  }

  #evict(): void {
    const tier = this.#random.below(SLOTS.length);
    const sizeClass = this.#random.below(this.#classes);
    const ofClass = this.#random.chance(0.3);
    const victim = ofClass ? this.policy.victimOfClass(tier, sizeClass) : this.policy.victim(tier);
    this.decisions.push(victim);
    if (victim === -1) return;
    this.#takeOut(victim);
    const content = this.#content[victim];
    this.#free(victim);
    this.#forgetIfUnused(content);
  }

  #free(replica: number): void {
    this.#content[replica] = FREE;
    this.#resident[tierOf(replica)] -= 4;
  }

  /** A content without replicas goes; children that it still has lose their parent, as when rows run out. */
  #forget(): void {
    const rows = this.#rowsWhere((content) => this.#alive[content] && !this.#content.includes(content));
    if (rows.length === 0) return;
    const content = this.#random.pick(rows);
    for (let child = 0; child < CONTENTS; child++)
      if (this.#parent[child] === content) this.#parent[child] = -2;
    this.#forgetIfUnused(content);
  }

  #forgetIfUnused(content: number): void {
    if (this.#content.includes(content) || this.#parent.includes(content)) return;
    this.policy.forgotten(content);
    this.#alive[content] = false;
    this.#parent[content] = -1;
  }

  #audit(): void {
    this.policy.checkIntegrity();
    for (let tier = 0; tier < SLOTS.length; tier++) {
      const entered = range(BASE[tier], BASE[tier + 1]).filter((replica) => this.#entered[replica] === 1);
      check(same(this.policy.dump(tier), entered), 'the dump has exactly who entered');
      const victim = this.policy.victim(tier);
      check(entered.length === 0 ? victim === -1 : entered.includes(victim), 'the victim has entered');
      check(this.policy.victim(tier) === victim, 'asked again, the victim is the same');
      for (let c = 0; c < this.#classes; c++) {
        const ofClass = entered.filter((replica) => this.#sizeClass[replica] === c);
        const candidate = this.policy.victimOfClass(tier, c);
        check(ofClass.length === 0 ? candidate === -1 : ofClass.includes(candidate), 'a victim of the class');
      }
    }
  }

  #rowsWhere(holds: (content: number) => boolean): number[] {
    return range(0, CONTENTS).filter(holds);
  }
}

function tierOf(replica: number): number {
  return replica < BASE[1] ? 0 : replica < BASE[2] ? 1 : 2;
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => from + i);
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && new Set([...a, ...b]).size === a.length;
}

function check(holds: boolean, rule: string): void {
  if (!holds) throw new Error(`broken: ${rule}`);
}
