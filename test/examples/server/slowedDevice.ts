/** A device that takes each block a little later, so that there is something to compute meanwhile. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { StoreResult } from '../../../src/runtime/index.ts';
import type { TopTierStore } from '../../../src/runtime/tier/tierStore.ts';

export function slowed(hbm: TopTierStore, msPerBlock: number): TopTierStore {
  const write: TopTierStore['write'] = async (items, ended = () => {}) => {
    const ends: StoreResult[] = [];
    for (const [i, item] of items.entries()) {
      await sleep(msPerBlock);
      ends.push(...(await hbm.write([item], (_, end) => ended(i, end))));
    }
    return ends;
  };
  return new Proxy(hbm, {
    get: (store, name) => {
      if (name === 'write') return write;
      const value = Reflect.get(store, name, store);
      return typeof value === 'function' ? value.bind(store) : value;
    },
  });
}
