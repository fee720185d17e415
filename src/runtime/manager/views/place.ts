/** Where a replica lies. */

import { State } from '../../replica/state.ts';
import type { Core } from '../core.ts';

export interface BlockPlace {
  /** Position of its tier: 0 is HBM. */
  readonly position: number;
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;
  /** Sequences that hold it there. */
  readonly holders: number;
  /** Whether its bytes are the sequence's own, and not those that its key stands for elsewhere. */
  readonly diverged: boolean;
}

export function placeOf(core: Core, replica: number): BlockPlace {
  const position = core.replicas.tierOf(replica);
  return {
    position,
    slot: core.replicas.slotOf(replica, position),
    generation: core.generationOf(replica),
    sizeClass: core.sizeClassOf(replica, position),
    holders: core.replicas.refs[replica],
    diverged: core.replicas.state[replica] === State.PRIVATE,
  };
}
