/**
 * Lowest priority first; among equals, the least recently used. A content has the priority of its owner: the
 * configuration names one level an owner, and other owners have level 0. Levels are plain data, so a log header can
 * hold them.
 */

import { configError } from '../errors.ts';
import type { EvictionWorld } from './evictionPolicy.ts';
import { RankedPolicy } from './rankedPolicy.ts';

export class PriorityEviction extends RankedPolicy {
  readonly #world: EvictionWorld;
  readonly #levels: readonly number[];

  /**
   * @param levels level of owner 0, 1, ... separated by commas, such as "2,0,1"
   * @throws TKV_CONFIG for a level that is not a number
   */
  constructor(world: EvictionWorld, levels: string) {
    super(world);
    this.#world = world;
    this.#levels = parseLevels(levels);
  }

  protected rankOf(_replica: number, content: number): number {
    return this.#levels[this.#world.owner[content]] ?? 0;
  }
}

function parseLevels(text: string): number[] {
  if (text.trim() === '') return [];
  return text.split(',').map((part) => {
    const level = Number(part);
    if (part.trim() !== '' && Number.isFinite(level)) return level;
    throw configError(
      'eviction.levels',
      `is ${JSON.stringify(text)}`,
      'Give one number for each owner: "2,0,1".',
    );
  });
}
