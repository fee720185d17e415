/**
 * What a decision costs does not grow with the instances that have nothing to do with it: keys are walked
 * once for all candidates, and an instance to which nothing happened is not read again. What is decided is
 * the same.
 */

import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import { KeyDirectory, LeadingBlocks } from '../../../src/sim/control/keyDirectories.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { RequestView } from '../../../src/sim/control/policy.ts';
import { scorers } from '../../../src/sim/control/routing/scorers.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { blockTokens, type FakeProbe, keyOf, probe, request } from './fixtures.ts';

const THOUSAND = 1000;

/** A prompt that counts how often its keys are asked for. */
function counted(fields: Parameters<typeof request>[0]): { readonly view: RequestView; asked(): number } {
  const plain = request(fields);
  let asked = 0;
  const view = {
    ...plain,
    get keys() {
      asked++;
      return plain.keys;
    },
  };
  return { view, asked: () => asked };
}

/** An instance that counts its reports, and says whether anything changed. */
function counting(number: number): FakeProbe & { reports: number; count: number } {
  const inner = probe(number, [100, 100]);
  const made = Object.assign(inner, { reports: 0, count: 0, changes: () => made.count });
  const { report } = inner;
  made.report = (into) => {
    made.reports++;
    report.call(made, into);
  };
  return made;
}

function planeOf(config: Partial<ControlConfig>, probes: readonly ReturnType<typeof counting>[]) {
  const plane = new PolicyControlPlane(config, { key: 42n, blockTokens, maxSequences: 256 });
  for (const each of probes) {
    plane.addInstance(each);
    plane.setRoutable(each.instance, true);
  }
  return plane;
}

function send(plane: PolicyControlPlane, view: RequestView, nowUs: number): number | undefined {
  plane.arrived(view, nowUs);
  plane.admit(view, nowUs);
  return plane.route(view, plane.prioritise(view, nowUs), nowUs)?.target;
}

const live = { snapshotIntervalUs: 0, cacheSignalUs: 0 };

describe('a decision about a thousand instances', () => {
  it.each(scorers.names)('asks for the keys of a prompt a few times with %s', (name) => {
    const probes = Array.from({ length: THOUSAND }, (_, i) => counting(i));
    const shadow = { model: 'speculative', blocks: 0, eventDelayUs: 0, speculativeTtlUs: 1000 } as const;
    const plane = planeOf(
      { routing: { policy: 'weighted', scorers: { [name]: 1 } }, signals: live, shadow },
      probes,
    );
    for (let number = 0; number < 5; number++) {
      plane.kvStored(number, 0, keyOf(number % 2, 0), number);
      const { view, asked } = counted({ number, group: number % 2 });
      expect(send(plane, view, number * 10)).toBeTypeOf('number');
      expect(asked()).toBeLessThan(12);
    }
  });

  it('reads no report of an instance to which nothing happened', () => {
    const probes = Array.from({ length: THOUSAND }, (_, i) => counting(i));
    const plane = planeOf(
      { routing: { policy: 'weighted', scorers: { 'queue-depth': 1 } }, signals: live },
      probes,
    );
    send(plane, request({ number: 0 }), 10);
    const first = probes.reduce((sum, { reports }) => sum + reports, 0);
    probes[7].queueDepth = 5;
    probes[7].count++;
    send(plane, request({ number: 1 }), 20);
    expect(probes.reduce((sum, { reports }) => sum + reports, 0) - first).toBe(1);
    const { instances } = plane.cluster(30);
    expect(instances[7]).toMatchObject({ queueDepth: 5, reportedUs: 30 });
    expect(instances[8]).toMatchObject({ queueDepth: 0, reportedUs: 30 });
  });

  it('decides as if everything were read each time', () => {
    const seed = 3n;
    const random = new PartitionedRandom(seed).stream('workload');
    const scorers = {
      'queue-depth': 1,
      'kv-utilization': 1,
      'running-requests': 1,
      'precise-prefix-cache': 1,
    };
    for (const snapshotIntervalUs of [0, 25]) {
      const config = {
        routing: { policy: 'weighted', scorers },
        signals: { snapshotIntervalUs, cacheSignalUs: 0 },
      };
      const counts = Array.from({ length: 12 }, (_, i) => counting(i));
      const plain = Array.from({ length: 12 }, (_, i) => Object.assign(counting(i), { changes: undefined }));
      const planes = [planeOf(config, counts), planeOf(config, plain as never)];
      for (let number = 0; number < 400; number++) {
        const at = random.intn(12);
        const [queueDepth, usedBlocks] = [random.intn(9), random.intn(100)];
        for (const each of [counts[at], plain[at]]) Object.assign(each, { queueDepth, usedBlocks });
        counts[at].count++;
        const group = random.intn(4);
        for (const each of planes)
          each.kvStored(at, 0, keyOf(group, random.intn(1) + (number % 3)), number * 10);
        if (number % 50 === 49) for (const each of planes) each.setRoutable(number % 12, number % 100 === 99);
        const views = planes.map(() => request({ number, group }));
        const [a, b] = planes.map((each, i) => send(each, views[i], number * 10));
        expect(a, `seed ${seed}, decision ${number}`).toBe(b);
      }
    }
  });
});

describe('leading blocks of all instances', () => {
  it('are the ones that each instance has by itself, over random calls', () => {
    const seed = 11n;
    const random = new PartitionedRandom(seed).stream('workload');
    const layers = [0, 0, 1].map((tier) => ({ tier, directory: new KeyDirectory() }));
    const held = layers.map(() => Array.from({ length: 9 }, () => new Set<string>()));
    const leading = new LeadingBlocks(layers);
    for (let call = 0; call < 30_000; call++) {
      const [layer, instance] = [random.intn(3), random.intn(9)];
      const [group, block] = [random.intn(3), random.intn(5)];
      const name = `${group} ${block}`;
      const what = random.intn(200);
      if (what === 0) {
        layers[layer].directory.removeInstance(instance);
        held[layer][instance].clear();
      } else if (what === 1) {
        const { directory } = layers[layer];
        restoreState(directory, structuredClone(saveState(directory)));
      } else if (what < 90) {
        layers[layer].directory.remove(instance, keyOf(group, block), 0);
        held[layer][instance].delete(name);
      } else {
        layers[layer].directory.add(instance, keyOf(group, block), 0);
        held[layer][instance].add(name);
      }
      if (call % 10 !== 0) continue;
      const asked = random.intn(3);
      const prompt = request({ group: asked, promptTokens: 4 * blockTokens });
      for (let each = 0; each < 9; each++) {
        const byTier = [0, 0];
        let blocks = 0;
        for (; blocks < 4; blocks++) {
          const at = held.findIndex((sets) => sets[each].has(`${asked} ${blocks}`));
          if (at === -1) break;
          byTier[layers[at].tier]++;
        }
        const where = `seed ${seed}, call ${call}, instance ${each}`;
        expect(leading.place(prompt, each), where).toEqual({ blocks, byTier });
        expect(leading.blocks(prompt, each), where).toBe(blocks);
      }
      for (const [i, { directory }] of layers.entries()) expect(directory.size(0)).toBe(held[i][0].size);
    }
  });
});
