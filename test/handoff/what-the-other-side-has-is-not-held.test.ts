/** A decode side may claim while a block that it has already is on its way into the top tier here: it is not held for it. */

import { expect, it } from 'vitest';
import type { BlockPort, HeldBlock, PromptUnits } from '../../src/embed/blockPort.ts';
import { Offer } from '../../src/serve/handoff/offer.ts';
import type { HandoffReference } from '../../src/serve/handoff/reference.ts';

const unit = (name: number): PromptUnits['units'][number] => ({
  key: Uint32Array.of(name, 0, 0, 0),
  parent: new Uint32Array(4),
  sizeClass: 0,
  bytes: 100,
  tokens: 16,
});

it('a block that was let go while it was loaded is released, and the next ones are held', async () => {
  const prompt = { units: [unit(1), unit(2)], owner: 0, tokens: 33 };
  const loaded = Promise.withResolvers<void>();
  const held = new Set<number>();
  const port = {
    canHold: () => true,
    hold: async ({ key: [name] }: PromptUnits['units'][number]): Promise<HeldBlock> => {
      held.add(name);
      if (name === 1) await loaded.promise;
      return { digest: { lo: 0, hi: 0 }, read: async () => true, release: () => void held.delete(name) };
    },
  };
  let heldBytes = 0;
  const offer = new Offer(port as unknown as BlockPort, prompt, { way: 'direct' } as HandoffReference, {
    leaseMs: 60_000,
    mayHold: () => heldBytes === 0, // others hold the rest
    held: (bytes) => {
      heldBytes += bytes;
    },
    sent: () => {},
    over: () => {},
  });
  offer.look();
  offer.letGo(0, false); // what a claim whose first block is 1 does
  offer.claimedBy({ advance: () => {}, offerEnded: () => {} });
  expect([...held]).toEqual([1]);
  loaded.resolve();
  await expect.poll(() => [...held]).toEqual([2]);
  expect([offer.unit(0), heldBytes]).toEqual(['gone', 100]);
  offer.withdraw();
  expect([held.size, heldBytes]).toEqual([0, 0]);
});
