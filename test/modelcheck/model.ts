/**
 * A small world whose every step is a choice: the real manager over a few slots, two requests, and a driver
 * that moves one number a slot. What may happen next is `actions()`; `apply` does it and checks everything
 * that must always hold. Bytes move at the worst moment: a copy reads its source when the job is issued or
 * when it ends, a failed one leaves garbage, a slot that is given back is poisoned, and a job past its
 * deadline still writes when it ends. An owner writes open blocks only when it is told of them, and may ask
 * to seal all of them at any time.
 */

import {
  DecisionOp,
  Entry,
  KVManager,
  type ManagerConfig,
  Outcome,
  type Sequence,
  type TopTier,
  type Transfer,
} from '../../src/runtime/index.ts';

export interface Scope {
  readonly name: string;
  readonly manager: ManagerConfig;
  /** Chains of the two requests, as block names above 0. */
  readonly chains: readonly (readonly number[])[];
  /** Computed and pushed down to the last tier before the exploration begins. */
  readonly cachedBelow: readonly number[];
  /** How often each fault may happen. */
  readonly faults: Readonly<Partial<Record<FaultAction, number>>>;
  /** Most faults on one way, of whatever kinds. */
  readonly faultsMax: number;
  /** Control: a driver that reports a job past its deadline as retired while its write is still to come. */
  readonly lyingDriver?: boolean;
  /** Control: open blocks are sealed whether or not their owner was told to write them. */
  readonly sealsUntold?: boolean;
}

export const faultActions = [
  'corrupt',
  'missing',
  'refused',
  'cancelled',
  'deadline',
  'evict',
  'lose',
] as const;
export type FaultAction = (typeof faultActions)[number];

/** What can happen next; `a` is a request, a tier or the place of a job in flight. */
export interface Action {
  readonly what:
    | 'open'
    | 'load'
    | 'allocate'
    | 'tell'
    | 'seal'
    | 'release'
    | 'cancel'
    | 'early'
    | 'late'
    | 'zombie'
    | FaultAction;
  readonly a: number;
}

interface Request {
  sequence: Sequence | null;
  /** Openings of blocks that its owner wrote, by slot and generation. */
  readonly written: Set<string>;
  phase: 'new' | 'open' | 'loading' | 'running' | 'done';
  /** Times that failed blocks may still be opened again. */
  retries: number;
}

interface Flight {
  readonly transfer: Transfer;
  /** What the source held when the job was issued. */
  readonly early: number;
  /** Its tier was lost before it read. */
  sourceLost: boolean;
  /** Past its deadline. */
  overdue: boolean;
}

const GARBAGE = -2;
const POISON = -1;
const outcomes = {
  corrupt: Outcome.CORRUPT,
  missing: Outcome.MISSING,
  refused: Outcome.REFUSED,
  cancelled: Outcome.CANCELLED,
} as const;

export class Model {
  readonly scope: Scope;
  readonly manager: KVManager;
  readonly requests: readonly Request[];
  readonly faultsLeft: Record<FaultAction, number>;
  faultsSpent = 0;
  /** What lies in each slot, by tier position. */
  readonly slots: readonly Int32Array[];
  readonly flights: Flight[] = [];
  /** Writes still to come of jobs that the lying driver reported as retired. */
  readonly zombies: Flight[] = [];
  #nowUs = 0;
  readonly #top: TopTier = {
    present: true,
    errors: { count: 0, last: '' },
    wipe: (slots) => {
      for (const { slot } of slots) this.slots[0][slot] = POISON;
    },
  };

  constructor(scope: Scope) {
    this.scope = scope;
    this.manager = new KVManager(
      { eviction: { policy: 'lru' }, ...scope.manager },
      {
        input: () => {},
        decision: (op, tier, slot) => {
          if (op === DecisionOp.FREE) this.slots[tier][slot] = POISON; // the bytes of a free slot are undefined
        },
      },
    );
    if (scope.sealsUntold !== true) this.manager.openings.connect(this.#top);
    this.slots = this.manager.config.tiers.map(({ shape }) => new Int32Array(shape.slotLimit).fill(POISON));
    this.requests = scope.chains.map(() => ({
      sequence: null,
      written: new Set(),
      phase: 'new',
      retries: 1,
    }));
    this.faultsLeft = Object.fromEntries(
      faultActions.map((fault) => [fault, scope.faults[fault] ?? 0]),
    ) as Record<FaultAction, number>;
    this.#cacheBelow(scope.cachedBelow);
  }

  actions(): Action[] {
    const actions: Action[] = [];
    this.requests.forEach((request, a) => {
      for (const what of requestActions(request, (sequence) => this.#hasUnwritten(a, sequence)))
        actions.push({ what, a });
    });
    this.flights.forEach(({ transfer, early, sourceLost }, a) => {
      if (sourceLost) actions.push({ what: 'missing', a });
      else actions.push({ what: 'late', a });
      if (transfer.source !== null && (sourceLost || early !== this.#lies(transfer))) {
        actions.push({ what: 'early', a });
      }
      for (const what of ['corrupt', 'missing', 'refused', 'cancelled'] as const) {
        if (this.#may(what) && !(what === 'missing' && sourceLost)) actions.push({ what, a });
      }
    });
    this.zombies.forEach((_, a) => {
      actions.push({ what: 'zombie', a });
    });
    if (this.#may('deadline') && this.flights.length > 0) actions.push({ what: 'deadline', a: 0 });
    if (this.#may('lose')) actions.push({ what: 'lose', a: 0 });
    if (this.#may('evict')) {
      for (let a = 0; a < this.slots.length; a++) {
        if (this.manager.inspect.usage(a).cachedBytes > 0) actions.push({ what: 'evict', a });
      }
    }
    return actions;
  }

  /** @param check false on a way that was checked before. @throws what broke, in words */
  apply({ what, a }: Action, check = true): void {
    this.#nowUs++;
    if (what === 'early' || what === 'late') this.#end(a, what);
    else if (what === 'zombie') this.#rise(a);
    else if (what === 'evict') {
      this.#spend('evict');
      this.manager.evict(a, 1, this.#nowUs);
    } else if (what === 'lose') this.#lose(a);
    else if (what === 'deadline') this.#expire();
    else if (what === 'corrupt' || what === 'missing' || what === 'refused' || what === 'cancelled') {
      if (!(what === 'missing' && this.flights[a].sourceLost)) this.#spend(what);
      this.#fail(a, outcomes[what]);
    } else this.#request(what, a);
    this.#takeJobs();
    if (check) this.#check();
  }

  #may(fault: FaultAction): boolean {
    return this.faultsLeft[fault] > 0 && this.faultsSpent < this.scope.faultsMax;
  }

  #spend(fault: FaultAction): void {
    this.faultsLeft[fault]--;
    this.faultsSpent++;
  }

  #request(what: 'open' | 'load' | 'allocate' | 'tell' | 'seal' | 'release' | 'cancel', a: number): void {
    const request = this.requests[a];
    const chain = this.scope.chains[a];
    const keys = keysOf(chain);
    if (what === 'open') {
      request.sequence = this.manager.open(keys, chain.length, this.#nowUs);
      request.phase = 'open';
      return;
    }
    const sequence = request.sequence!;
    if (what === 'load') {
      if (this.manager.load(sequence, this.#nowUs, 0, sequence.length)) request.phase = 'loading';
    } else if (what === 'allocate') {
      if (request.phase === 'running') request.retries--;
      if (this.manager.allocate(sequence, 0, chain.length, this.#nowUs)) request.phase = 'running';
    } else if (what === 'tell') {
      this.manager.openings.tell(sequence, 0, sequence.length, 16, 16 * sequence.length);
      this.#write(a, sequence);
    } else if (what === 'seal') {
      for (let i = 0; i < sequence.length; i++) {
        if (!this.manager.openings.maySeal(sequence, i, 16)) continue;
        this.manager.seal(sequence, i, i + 1, keys, i * 4, 16, this.#nowUs);
      }
    } else {
      this.manager[what](sequence, this.#nowUs);
      request.phase = 'done';
      request.written.clear();
      request.sequence = null;
    }
  }

  #end(at: number, when: 'early' | 'late'): void {
    const [flight] = this.flights.splice(at, 1);
    const { transfer, early } = flight;
    const target = this.slots[transfer.target.tier];
    if (transfer.source === null) {
      const value = target[transfer.target.slot];
      this.manager.complete(transfer.job, Outcome.LOADED, this.#nowUs, value >>> 0, 0);
      return;
    }
    target[transfer.target.slot] = when === 'early' ? early : this.#lies(transfer);
    this.manager.complete(transfer.job, Outcome.LOADED, this.#nowUs);
  }

  #fail(at: number, outcome: Outcome): void {
    const [flight] = this.flights.splice(at, 1);
    const { transfer } = flight;
    if (transfer.source !== null) this.slots[transfer.target.tier][transfer.target.slot] = GARBAGE;
    this.manager.complete(transfer.job, outcome, this.#nowUs);
  }

  /** Every job in flight is past its deadline. */
  #expire(): void {
    this.#spend('deadline');
    for (const flight of this.flights) {
      flight.overdue = true;
      this.manager.setDeadline(flight.transfer.job, this.#nowUs);
    }
    this.manager.tick(this.#nowUs);
    if (this.scope.lyingDriver !== true) return;
    for (const flight of this.flights.splice(0)) {
      this.zombies.push(flight);
      this.manager.complete(flight.transfer.job, Outcome.CANCELLED, this.#nowUs);
    }
  }

  #rise(at: number): void {
    const [{ transfer, early }] = this.zombies.splice(at, 1) as [Flight];
    if (transfer.source !== null) this.slots[transfer.target.tier][transfer.target.slot] = early;
  }

  #lose(tier: number): void {
    this.#spend('lose');
    this.slots[tier].fill(POISON);
    for (const flight of this.flights) if (flight.transfer.source?.tier === tier) flight.sourceLost = true;
    this.manager.loseTier(tier, this.#nowUs);
  }

  #lies({ source }: Transfer): number {
    return this.slots[source!.tier][source!.slot];
  }

  #takeJobs(): void {
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      const transfer = this.manager.transfer(job);
      const early = transfer.source === null ? POISON : this.#lies(transfer);
      this.flights.push({ transfer, early, sourceLost: false, overdue: false });
    }
  }

  /** The owner writes the open blocks that it was told of. */
  #write(r: number, sequence: Sequence): void {
    for (let i = 0; i < sequence.length; i++) {
      const block = this.manager.openBlock(sequence, i);
      if (block === undefined) continue;
      this.slots[0][block.slot] = this.scope.chains[r][i];
      this.requests[r].written.add(`${block.slot} ${block.generation}`);
    }
  }

  /** Whether the request's block is open, and its owner wrote it since it was opened. */
  isWritten(r: number, i: number): boolean {
    const { sequence, written } = this.requests[r];
    const block = sequence === null ? undefined : this.manager.openBlock(sequence, i);
    return block !== undefined && written.has(`${block.slot} ${block.generation}`);
  }

  #hasUnwritten(r: number, { length, state }: Sequence): boolean {
    for (let i = 0; i < length; i++) if (state[i] === Entry.OPEN && !this.isWritten(r, i)) return true;
    return false;
  }

  #check(): void {
    this.manager.checkIntegrity();
    const restless = this.flights.some(({ overdue }) => !overdue);
    this.requests.forEach(({ sequence }, r) => {
      if (sequence === null) return;
      for (let i = 0; i < sequence.length; i++) {
        const block = this.manager.loadedBlock(sequence, i);
        if (block === undefined) continue;
        const found = this.slots[0][block.slot];
        if (found !== this.scope.chains[r][i]) {
          throw new Error(
            `request ${r} may read block ${i} and finds ${found}, not ${this.scope.chains[r][i]}`,
          );
        }
      }
      if (!restless && sequence.pending > 0) {
        throw new Error(
          `request ${r} waits for ${sequence.pending} blocks, and nothing in flight will bring them`,
        );
      }
    });
    if (this.requests.every(({ phase }) => phase === 'done') && this.flights.length === 0) this.#checkRest();
  }

  #checkRest(): void {
    if (this.manager.inspect.jobsInFlight !== 0) throw new Error('jobs are left when nothing is in flight');
    for (let tier = 0; tier < this.slots.length; tier++) {
      const { slots, heldBytes, residentBytes, cachedBytes } = this.manager.inspect.usage(tier);
      const left = slots.reserved + slots.filling + slots.open + slots.draining;
      if (left + heldBytes + (residentBytes - cachedBytes) !== 0)
        throw new Error(`tier ${tier} leaks ${left} slots`);
    }
  }

  #cacheBelow(chain: readonly number[]): void {
    if (chain.length === 0) return;
    const keys = keysOf(chain);
    const sequence = this.manager.open(keys, chain.length, 0);
    this.manager.allocate(sequence, 0, chain.length, 0);
    chain.forEach((name, i) => {
      this.slots[0][this.manager.openBlock(sequence, i)!.slot] = name;
    });
    this.manager.openings.tell(sequence, 0, chain.length, 16, 16 * chain.length);
    this.manager.seal(sequence, 0, chain.length, keys, 0, 16, 0);
    this.#settle();
    this.manager.release(sequence, 0);
    for (let tier = 0; tier + 1 < this.slots.length; tier++) {
      this.manager.evict(tier, chain.length, 0);
      this.#settle();
    }
  }

  #settle(): void {
    for (this.#takeJobs(); this.flights.length > 0; this.#takeJobs()) this.#end(0, 'late');
  }
}

function requestActions(
  { sequence, phase, retries }: Request,
  hasUnwritten: (sequence: Sequence) => boolean,
): Action['what'][] {
  if (phase === 'new') return ['open'];
  if (sequence === null) return [];
  const has = (state: Entry): boolean => sequence.state.subarray(0, sequence.length).includes(state);
  const actions: Action['what'][] = ['release', 'cancel'];
  if (has(Entry.MATCHED)) actions.push('load');
  if (phase !== 'running') actions.push('allocate');
  else if (sequence.firstFailed() !== -1 && retries > 0) actions.push('allocate');
  if (phase === 'running' && has(Entry.OPEN)) {
    if (hasUnwritten(sequence)) actions.push('tell');
    actions.push('seal');
  }
  return actions;
}

/**
 * A block's key names the block and nothing else: the chains are made so that equal names have equal
 * prefixes.
 */
function keysOf(chain: readonly number[]): Uint32Array {
  let keys = knownKeys.get(chain);
  if (keys === undefined) {
    keys = Uint32Array.from(chain.flatMap((name) => [name, 1, 2, 3]));
    knownKeys.set(chain, keys);
  }
  return keys;
}
const knownKeys = new WeakMap<readonly number[], Uint32Array>();
