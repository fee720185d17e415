/**
 * The contract of a tier store (src/runtime/tier/tierStore.ts) as tests. Every store passes it, also the
 * modeled one that moves no bytes: what a store answers is the same everywhere, only the comparison of bytes
 * depends on `movesBytes`.
 *
 *     tierContract('memory', async (shape) => ({ store: await MemoryStore.open(shape), movesBytes: true }));
 *
 * Needs vitest, an optional peer of this package.
 */

import { describe } from 'vitest';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { type PoolShape, poolShape } from '../../runtime/pool/shape.ts';
import { bytesOfSlots } from './bytesOfSlots.ts';
import { callsInFlight } from './callsInFlight.ts';
import { generationsOfSlots } from './generationsOfSlots.ts';
import { storeOnTrial, type TierUnderTest } from './trial.ts';
import { verificationOfReads } from './verificationOfReads.ts';

export interface TierContractOptions {
  /** Slot sizes that the store accepts are multiples of this. Default 4. */
  readonly granuleBytes?: number;
}

export const tierContractOptionsNames: readonly string[] = optionNames<TierContractOptions>({
  granuleBytes: true,
});

const size = (wanted: number, granule: number): number => Math.ceil(wanted / granule) * granule;

/** Registers the suite under `name`; `make` opens a new, empty store of the shape it is given. */
export function tierContract(
  name: string,
  make: (shape: PoolShape) => TierUnderTest | Promise<TierUnderTest>,
  options: TierContractOptions = {},
): void {
  requireOptions(options, tierContractOptionsNames, 'options', 'TKV_CONFIG');
  const granule = options.granuleBytes ?? 4;
  const shapes: Record<string, PoolShape> = {
    'sizes of powers of two': poolShape(6, 65536, [65536, 16384, size(1024, granule)]),
    'sizes that divide no page evenly': poolShape(5, size(20_000, granule), [
      size(12_292, granule),
      size(1004, granule),
    ]),
  };
  for (const [shapeName, shape] of Object.entries(shapes)) {
    describe(`tier contract: ${name}, ${shapeName}`, () => {
      const trial = storeOnTrial(shape, make);
      bytesOfSlots(trial);
      generationsOfSlots(trial);
      verificationOfReads(trial);
      callsInFlight(trial);
    });
  }
}
