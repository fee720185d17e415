/** What a registration declares of a policy is what the policy does: reports of instances, and block keys of prompts. */

import { describe, expect, test } from 'vitest';
import type { InstanceSnapshot } from '../../../../src/sim/control/policy.ts';
import { routingPolicies } from '../../../../src/sim/control/routing/routing.ts';
import { scorers } from '../../../../src/sim/control/routing/scorers.ts';
import { instance, request, router, world } from '../fixtures.ts';

const fresh = ['instance', 'id', 'role', 'model', 'configId', 'inFlight', 'inFlightTokens'];

/** Three instances, and what is read of them that they report. */
function watched(): { readonly candidates: InstanceSnapshot[]; readonly read: Set<string> } {
  const read = new Set<string>();
  const candidates = [0, 1, 2].map((number) => {
    const fields = { queueDepth: 3 - number, batchSize: number, inFlight: 2 * number, used: 100 * number };
    return new Proxy(instance(number, fields), {
      get(target, name) {
        if (!fresh.includes(String(name))) read.add(String(name));
        return Reflect.get(target, name);
      },
    });
  });
  return { candidates, read };
}

const asked = request({ adapter: 'lora', sessionId: 's' });
const priority = { score: 0, rank: 0, hints: { sheddable: false, dueUs: 0 } };

test.each(scorers.names)('the scorer %s', (name) => {
  const { candidates, read } = watched();
  scorers
    .make({ policy: name }, { blockTokens: 16 })
    .score({ request: asked, priority, candidates, router: router() }, new Float64Array(8));
  expect(read.size > 0).toBe(scorers.readsReports({ policy: name }));
});

describe('a policy by name', () => {
  const readBy = (choice: { readonly policy: string }): { says: boolean; read: string[] } => {
    const policy = routingPolicies.make(choice, world());
    const { candidates, read } = watched();
    const context = { request: asked, priority, candidates, router: router() };
    for (let i = 0; i < 8; i++) {
      const { index } = policy.choose(context);
      policy.routed?.(context, index);
    }
    return { says: policy.readsReports, read: [...read] };
  };

  test.each(routingPolicies.names)('%s reads them where it says so, and nowhere else', (policy) => {
    const { says, read } = readBy({ policy });
    if (says) expect(read.length).toBeGreaterThan(0);
    else expect(read).toEqual([]);
  });

  test.each(routingPolicies.names)('%s is registered as reading them when it does', (policy) => {
    const made = routingPolicies.make({ policy }, world());
    expect(routingPolicies.readsReports({ policy })).toBe(made.readsReports);
  });

  test.each(routingPolicies.names)('%s looks at block keys only where its registration says so', (policy) => {
    const made = routingPolicies.make({ policy }, world());
    let looks = 0;
    const blind = {
      ...asked,
      get keys() {
        looks++;
        return asked.keys;
      },
    };
    const asksCaches = { topBlocks: () => ++looks, place: () => ({ blocks: ++looks, byTier: [0, 0] }) };
    const books = Object.assign(Object.create(router()), { observedKv: asksCaches });
    const context = { request: blind, priority, candidates: watched().candidates, router: books };
    for (let i = 0; i < 4; i++) {
      const { index } = made.choose(context);
      made.routed?.(context, index);
    }
    expect(looks > 0).toBe(routingPolicies.readsKeys({ policy }));
  });

  test('parameters change what a weighted policy is registered as reading', () => {
    const choice = (more: object): never => {
      return { policy: 'weighted', scorers: { 'active-requests': 1 }, ...more } as never;
    };
    const reads = (more: object): boolean[] => {
      return [routingPolicies.readsKeys(choice(more)), routingPolicies.readsReports(choice(more))];
    };
    expect(reads({})).toEqual([false, false]);
    expect(reads({ maxQueueDepth: 1 })).toEqual([false, true]);
    expect(reads({ prefixCacheAffinity: true })).toEqual([true, true]);
    expect(reads({ scorers: { 'prefix-affinity': 1 } })).toEqual([true, false]);
  });

  test('a filter by reports makes it read them, one by concurrency does not', () => {
    const scorers = { 'prefix-affinity': 1, 'active-requests': 1 };
    const weighted = (more: object): object => readBy({ policy: 'weighted', scorers, ...more } as never);
    expect(weighted({})).toEqual({ says: false, read: [] });
    expect(weighted({ concurrencyKind: 'requests', maxConcurrency: 1 })).toEqual({ says: false, read: [] });
    expect(weighted({ maxQueueDepth: 1 })).toEqual({ says: true, read: ['queueDepth', 'kv'] });
  });
});
