/** The audit of a pool: its manager, and that blocks, holders, tracks and places agree. For tests. */

import { invariant } from '../errors.ts';
import { Entry } from '../manager/sequences/blockTable/sequence.ts';
import type { KVBlockDescriptor } from './descriptor.ts';
import type { Track } from './sequences/track.ts';
import type { PoolState } from './state.ts';

export function checkPool(state: PoolState): void {
  state.manager.checkIntegrity();
  const held = new Map<Track, number>();
  const openPlaces = new Map<string, string>();
  let tracks = 0;
  for (const sequence of state.sequences.values()) {
    tracks += sequence.tracks.size;
    invariant(sequence.descriptors.size > 0, 'a sequence has blocks');
    const owned = new Map<Track, Set<number>>();
    for (const block of sequence.descriptors) {
      checkBlock(block);
      for (const { track, unit } of block.units) {
        invariant(sequence.tracks.get(track.column.id) === track, 'a block lies in its own sequence');
        invariant(unit < track.units, 'a block has units of its track');
        const units = owned.get(track) ?? new Set();
        invariant(!units.has(unit), 'a unit of a sequence belongs to one block');
        owned.set(track, units.add(unit));
        held.set(track, (held.get(track) ?? 0) + 1);
        const place = state.placeOf({ track, unit });
        if (place === undefined || track.stateOf(unit) !== Entry.OPEN) continue;
        const name = `${place.tier} ${place.offset}`;
        invariant(!openPlaces.has(name), () => `${name} is written by two`);
        openPlaces.set(name, sequence.id);
      }
    }
  }
  invariant(tracks === state.tables.size, 'every track has its table');
  invariant(tracks === state.manager.openSequences, 'every table has its track');
  for (const { sequence, track } of state.tables.values()) {
    invariant(state.sequences.get(sequence.id) === sequence, 'a table belongs to a sequence that there is');
    invariant((held.get(track) ?? 0) === track.held, 'a track knows how many of its units are held');
    invariant(track.units === Math.ceil(track.tokens / track.column.tokensPerUnit), 'a track has its units');
  }
  for (const { holders } of state.records.values()) {
    for (const block of holders) {
      const alive = state.sequences.get(block.sequenceId)?.descriptors.has(block) === true;
      invariant(alive, 'a holder of a block holds it');
    }
  }
}

function checkBlock(block: KVBlockDescriptor): void {
  const [start, end] = block.tokenRange;
  invariant(start < end && block.units.length > 0, 'a block holds something');
  invariant(block.record.holders.has(block), 'a block is among its holders');
  const bytes = block.units.reduce((sum, unit) => {
    const { layerStart, layerEnd, headStart, headEnd, tokenStart, tokenEnd } = block.boxOf(unit);
    return sum + (layerEnd - layerStart) * (headEnd - headStart) * (tokenEnd - tokenStart);
  }, 0);
  invariant(
    bytes === block.layerIds.length * block.headIds.length * (end - start),
    'the units of a block hold its layers, heads and tokens',
  );
}
