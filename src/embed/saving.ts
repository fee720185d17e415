/**
 * How what is cached gets into the files before a planned end. A save copies, block by block, straight from where each
 * block lies; it moves nothing and gives no room away, so what could not be written is still where it was. Each copy is
 * read back before it counts, and so is what others wrote there before and has not been read since. All of them are durable
 * before the call ends well.
 */

import type { DurableTier } from '../backends/tierRow.ts';
import { namedError, TierKVError } from '../runtime/errors.ts';
import { tierName } from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import type { SlotPlace } from '../runtime/tier/tierStore.ts';
import { inConfigNames } from './config.ts';
import type { RequestContext } from './context.ts';
import type { OpenStores } from './stores.ts';

export interface SaveOptions {
  /**
   * Where the files are as full as they may be: `keep` leaves what they hold, and the rest is not saved; `replace` lets
   * the blocks that their eviction policy names go for saved ones, once these have arrived. Default `keep`.
   */
  readonly whenFull?: 'keep' | 'replace' | undefined;
}

const saveOptionsTable = optionTable({
  whenFull: is.optional(is.oneOf<'keep' | 'replace'>(['keep', 'replace']), 'keep'),
} satisfies Kinds<SaveOptions>);

/** Bytes that are on their way at a time, and blocks: few enough that each of them is on disk before its deadline. */
const UNDER_WAY_BYTES = 64 * 1024 * 1024;
const UNDER_WAY_BLOCKS = 64;
/** A block that turns out to be damaged is written anew where it still lies above; more rounds than one need others' writes. */
const ROUNDS_MAX = 4;
/** Blocks in a row that a tier refuses, or is late with, before the others are not tried. */
const REFUSALS_MAX = 64;

/**
 * Copies what is cached above the first tier that outlives the process into that tier, and makes it durable.
 * @returns blocks that it holds durably then; 0 where no tier outlives the process
 * @throws TKV_IO when a block could not be kept, or is not durable. Every block is still where it was
 */
export async function saveDurably(
  context: SaveContext,
  { tiers }: Pick<OpenStores, 'tiers'>,
  options: SaveOptions = {},
): Promise<number> {
  const { whenFull } = saveOptionsTable.read(options);
  const { manager } = context;
  const durableOf = (position: number): DurableTier | undefined =>
    tiers.get(tierName(manager.inspect.tiers[position]))?.durable;
  const target = manager.inspect.tiers.findIndex((_, position) => durableOf(position) !== undefined);
  const durable = durableOf(target);
  if (durable === undefined) return 0;
  const run = new SaveRun(context, target, whenFull === 'replace');
  let held = 0;
  for (let round = 1; round <= ROUNDS_MAX; round++) {
    await run.copyAll();
    held = manager.inspect.usage(target).slots.ready;
    let damaged: readonly SlotPlace[];
    try {
      damaged = await durable.save();
    } catch (error) {
      throw notDurable(inConfigNames(error), run.copied);
    }
    if (damaged.length === 0) break;
    for (const { slot, generation } of damaged) manager.damaged(target, slot, generation, context.nowUs());
    held = manager.inspect.usage(target).slots.ready;
    if (round === ROUNDS_MAX) run.left.set('what is read there is not what was written', damaged.length);
  }
  if (run.left.size === 0) return held;
  throw inConfigNames(notKept(held, run.left, tierName(manager.inspect.tiers[target])));
}

type SaveContext = Pick<RequestContext, 'manager' | 'loop' | 'moves' | 'nowUs'>;

/** Blocks that a save left where they are: the number by reason. */
type LeftBlocks = ReadonlyMap<string, number>;

class SaveRun {
  readonly #context: SaveContext;
  readonly #target: number;
  readonly #replaces: boolean;
  readonly left: Map<string, number> = new Map();
  /** Blocks that were written. */
  copied = 0;
  #keys: Uint32Array = new Uint32Array(0);
  #next = 0;
  #underWay = 0;
  #refusals = 0;
  #lastRefusal = '';
  readonly #waiting: (() => void)[] = [];

  constructor(context: SaveContext, target: number, replaces: boolean) {
    this.#context = context;
    this.#target = target;
    this.#replaces = replaces;
  }

  async copyAll(): Promise<void> {
    const { manager } = this.#context;
    this.#keys = manager.inspect.unsaved(this.#target);
    this.#next = 0;
    this.#refusals = 0;
    this.left.clear();
    const fit = Math.floor(UNDER_WAY_BYTES / Math.max(...manager.config.unitBytes));
    const lanes = Math.max(2, Math.min(UNDER_WAY_BLOCKS, fit));
    await Promise.all(Array.from({ length: lanes }, () => this.#lane()));
  }

  async #lane(): Promise<void> {
    while (this.#next < this.#keys.length) {
      const key = this.#keys.subarray(this.#next, this.#next + 4);
      this.#next += 4;
      const why = this.#refusals < REFUSALS_MAX ? await this.#copy(key) : this.#lastRefusal;
      if (why !== '') this.left.set(why, (this.left.get(why) ?? 0) + 1);
    }
  }

  /** @returns why the tier has it not; empty where it has, or where the cache has given it up meanwhile */
  async #copy(key: Uint32Array): Promise<string> {
    const { manager, nowUs } = this.#context;
    for (;;) {
      const answer = manager.save(key, this.#target, this.#replaces, nowUs());
      if (answer === 'there' || answer === 'absent') return '';
      if (answer === 'full') return 'full';
      if (answer === 'declined') return 'declined';
      if (answer === 'busy') {
        if (this.#underWay === 0) return 'full';
        await new Promise<void>((free) => this.#waiting.push(free));
        continue;
      }
      const at = answer === 'moving' ? manager.inspect.arrivingIn(key) : this.#target;
      const why = await this.#end(key, at);
      if (answer !== 'moving') return why;
    }
  }

  /** Fulfilled when the job has ended that brings the block to `position`, with why it did not bring it. */
  async #end(key: Uint32Array, position: number): Promise<string> {
    const { moves, loop } = this.#context;
    this.#underWay++;
    const why = await new Promise<string>((resolve) => {
      moves.await(key, position, ({ success, reason }) => resolve(success ? '' : loop.reason || reason));
    });
    this.#underWay--;
    for (const free of this.#waiting.splice(0)) free();
    if (position === this.#target) {
      if (why === '') this.copied++;
      this.#refusals = why === '' ? 0 : this.#refusals + 1;
      this.#lastRefusal = withoutPlace(why);
    }
    return withoutPlace(why);
  }
}

/** `ENOSPC on write of slot 17` is one reason, whatever the slot. */
function withoutPlace(why: string): string {
  return why.replace(/ on write of slot \d+/, '').replace(/slot \d+: /, '');
}

/** Causes that are the tier's own limits, with what can be done; others are errors of the disk, in its own words. */
function causeOf(
  cause: string,
  tier: string,
): { why: string; remedy: (name: (field: string) => string) => string; field: string } {
  if (cause === 'full') {
    const field = `${tier}.capacityBytes`;
    return {
      why: 'the files are as full as they may be',
      remedy: (name) =>
        `Raise ${name(field)}, or let older blocks go for them: save({ whenFull: 'replace' })`,
      field,
    };
  }
  const field = `${tier}.writeBudget`;
  if (cause === 'declined') {
    return {
      why: 'the write budget does not pay for more',
      remedy: (name) => `Raise ${name(field)}, or save later`,
      field,
    };
  }
  return { why: cause, remedy: () => 'Give the disk room, or see what ails it, and save again', field: tier };
}

/** The disk wrote the blocks, and does not say that they survive. */
function notDurable(error: unknown, copied: number): unknown {
  if (!(error instanceof TierKVError)) return error;
  const { code, field, path } = error;
  const kept = `${copied} blocks were written and may not survive; all are still where they were.`;
  const facts = {
    ...(field === undefined ? {} : { field }),
    ...(path === undefined ? {} : { path }),
    cause: error,
  };
  return new TierKVError(code, `${error.message} ${kept}`, facts);
}

function notKept(held: number, left: LeftBlocks, tier: string): TierKVError {
  const causes = [...left].sort((a, b) => b[1] - a[1]);
  const count = causes.reduce((sum, [, blocks]) => sum + blocks, 0);
  const told = causes.map(([cause, blocks]) => `${blocks}: ${causeOf(cause, tier).why}`).join('; ');
  const { remedy, field } = causeOf(causes[0][0], tier);
  const rest =
    count === 1
      ? '1 is not saved and still where it was'
      : `${count} are not saved and still where they were`;
  return namedError(
    'TKV_IO',
    { field },
    (name) =>
      `${tier} holds ${held} ${held === 1 ? 'block' : 'blocks'} durably, and ${rest} (${told}). ${remedy(name)}.`,
  );
}
