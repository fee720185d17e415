/** An error that is not the server's ends the items of a call as any other, and the store goes on. */

import { expect, it, vi } from 'vitest';
import { RemoteLink } from '../../../src/backends/remote/remoteLink.ts';
import { RemoteStore } from '../../../src/backends/remote/remoteStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import { emptyItem, patternItem } from '../../../src/testing/index.ts';

it('a write, a read and a lookup', async () => {
  const url = { shown: 'redis://host:1', kind: 'single', tls: false };
  const call = vi.fn(async (): Promise<unknown> => {
    throw new TypeError('as of a package that gives something else');
  });
  const breaker = { state: 'closed', openings: 0, reason: '', loaded: () => {} };
  const link = { url, call, breaker, connections: 0, [Symbol.dispose]() {} };
  vi.spyOn(RemoteLink, 'open').mockResolvedValue(link as never);
  const shape = poolShape(4, 4096, [4096]);
  await using store = await RemoteStore.open(shape, {
    url: 'redis://host:1',
    secretKey: new Uint8Array(32),
    layout: 'test',
  });
  const item = patternItem(shape, 0, 0, 1);
  const refused = [{ outcome: Outcome.REFUSED, reason: expect.stringContaining('gives something else') }];
  for (let i = 1; i <= 3; i++) {
    expect(await store.write([item])).toEqual(refused); // in the same slot: the one before is locked no more
    store.believe(item, item.key);
    expect(await store.read([emptyItem(item)])).toEqual(refused);
    expect(await store.lookup([{ keys: item.key, from: 0, to: 1, sizeClass: 0 }])).toEqual([[]]);
    expect(call).toHaveBeenCalledTimes(3 * i);
  }
  expect(store.describe()).toMatchObject({ writingBytes: 0, faults: 9 });
});
