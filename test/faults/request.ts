/**
 * One request as a server makes it: match, load, compute missing blocks, seal, hold for a while, release.
 * Blocks that fail are computed again; a request that never fits is given up. Every wait is for the runtime,
 * and the world notices if one never ends.
 */

import { Entry, type Sequence } from '../../src/runtime/index.ts';
import type { Chain } from './blocks.ts';
import type { FaultWorld } from './faultWorld.ts';

const ATTEMPTS_MAX = 8;

export class Request {
  readonly #world: FaultWorld;
  readonly #chain: Chain;
  readonly #sequence: Sequence;
  /** Place in which block i was written, 0 while it was not. */
  readonly #written: Float64Array;
  /** Place in which block i was found wrong. */
  readonly #wrong: Float64Array;

  constructor(world: FaultWorld) {
    const { random, manager } = world;
    this.#world = world;
    this.#chain = world.blocks.chain(random, world.config.blocksMax);
    const { keys, blocks } = this.#chain;
    const limit = random.chance(0.3) ? blocks - 1 : blocks;
    this.#sequence = manager.open(keys, blocks, world.nowUs, limit);
    this.#written = new Float64Array(blocks);
    this.#wrong = new Float64Array(blocks);
    world.live.add(this);
  }

  async run(): Promise<void> {
    const { manager, random, clock } = this.#world;
    const sequence = this.#sequence;
    if (random.chance(0.15)) {
      manager.load(sequence, this.#world.nowUs);
      await clock.wait(random.below(200));
      this.#end('cancel');
      return;
    }
    for (let hold = random.below(2); hold >= 0; hold--) {
      for (let attempt = 0; attempt < ATTEMPTS_MAX && !this.#complete(); attempt++) {
        if (!(await this.#bring())) break;
        this.#seal();
        await this.#world.settled(sequence);
      }
      await clock.wait(random.below(600));
    }
    this.#end((['release', 'release', 'preempt', 'cancel'] as const)[random.below(4)]);
  }

  /**
   * Blocks that may be read, or that the sequence wrote, and that hold other bytes than its tenant's. Each
   * counts once.
   */
  countWrongBlocks(): number {
    const { manager, device, blocks, report } = this.#world;
    let wrong = 0;
    for (let i = 0; i < this.#sequence.length; i++) {
      const loaded = manager.loadedBlock(this.#sequence, i);
      const block = loaded ?? manager.openBlock(this.#sequence, i);
      if (block === undefined || (loaded === undefined && this.#written[i] !== placeOf(block))) continue;
      report.reads++;
      const right = blocks.right(this.#chain.keys, i * 4);
      if (Buffer.compare(device.bytesAt(block.slot), right) === 0) continue;
      if (this.#wrong[i] === placeOf(block)) continue;
      this.#wrong[i] = placeOf(block);
      wrong++;
    }
    return wrong;
  }

  #complete(): boolean {
    return this.#sequence.readyPrefix() === this.#chain.blocks;
  }

  /** Loads and allocates until every block is in HBM or failed; false if HBM has too little room. */
  async #bring(): Promise<boolean> {
    const { manager } = this.#world;
    const sequence = this.#sequence;
    const { blocks } = this.#chain;
    if (!manager.load(sequence, this.#world.nowUs, 0, sequence.length)) return false;
    if (!manager.allocate(sequence, 0, blocks, this.#world.nowUs)) return false;
    await this.#world.settled(sequence);
    for (let i = 0; i < blocks; i++) {
      const block = manager.openBlock(sequence, i);
      if (block === undefined || this.#written[i] === placeOf(block)) continue;
      this.#world.device.bytesAt(block.slot).set(this.#world.blocks.right(this.#chain.keys, i * 4));
      this.#written[i] = placeOf(block);
    }
    return true;
  }

  #seal(): void {
    const { manager } = this.#world;
    for (let i = 0; i < this.#sequence.length; i++) {
      if (this.#sequence.state[i] !== Entry.OPEN) continue;
      manager.seal(this.#sequence, i, i + 1, this.#chain.keys, i * 4, 16, this.#world.nowUs);
    }
  }

  #end(how: 'release' | 'cancel' | 'preempt'): void {
    this.#world.live.delete(this);
    this.#world.manager[how](this.#sequence, this.#world.nowUs);
  }
}

function placeOf({ slot, generation }: { slot: number; generation: number }): number {
  return generation * 4096 + slot;
}
