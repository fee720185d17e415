/** Gateway queues by name, and the detectors of saturation that they dispatch by. */

import {
  concurrencyKindOf,
  concurrencyKinds,
  concurrencySaturation,
  utilizationSaturation,
} from '../admission/index.ts';
import type { ClusterState } from '../instances.ts';
import { type NumberRule, PolicyRegistry } from '../registry/index.ts';
import { BandedGateway, fairnessNames } from './bandedGateway.ts';
import type { FlowControl } from './gateway.ts';

export type { EnqueueResult, FlowControl, GatewayEntry } from './gateway.ts';

const limit: NumberRule = { kind: 'number', default: 0, min: 0, integer: true };

/** A gateway, and how it sees saturation. */
export interface Gateway {
  readonly queue: FlowControl;
  saturation(cluster: ClusterState): number;
}

export const gateways: PolicyRegistry<Gateway> = new PolicyRegistry<Gateway>('gateway', {
  banded: {
    about: 'bands by priority, flows by tenant',
    parameters: {
      detector: { kind: 'choice', default: 'never', names: ['never', 'utilization', 'concurrency'] },
      queueThreshold: { kind: 'number', default: 5, above: 0 },
      kvThreshold: { kind: 'number', default: 0.8, above: 0, max: 1 },
      concurrencyKind: { kind: 'choice', default: 'requests', names: concurrencyKinds },
      maxConcurrency: { kind: 'number', default: 100, min: 1, integer: true },
      maxTokenConcurrency: { kind: 'number', default: 1_000_000, min: 1, integer: true },
      /** `priority` and `fifo` differ in nothing, since bands are walked by priority. */
      order: { kind: 'choice', default: 'fifo', names: ['fifo', 'priority', 'slo-deadline'] },
      fairness: { kind: 'choice', default: 'global-strict', names: fairnessNames },
      serviceWeight: { kind: 'number', default: 0.8, min: 0, with: ['fairness'] },
      waitWeight: { kind: 'number', default: 0.2, min: 0, with: ['fairness'] },
      halfLifeUs: { kind: 'number', default: 60_000_000, above: 0, with: ['fairness'] },
      maxDepth: limit,
      perBandCapacity: limit,
      usageLimit: { kind: 'number', default: 1, above: 0, max: 1 },
      shedding: { kind: 'flag', default: false },
      targetsUs: { kind: 'numbers', default: {}, each: { kind: 'number', default: 0, above: 0 } },
    },
    make: (p) => {
      const detector = p.text('detector');
      const caps = {
        kind: concurrencyKindOf(p.text('concurrencyKind')) ?? 'requests',
        requests: p.number('maxConcurrency'),
        tokens: p.number('maxTokenConcurrency'),
      };
      return {
        queue: new BandedGateway({
          maxDepth: p.number('maxDepth'),
          perBandCapacity: p.number('perBandCapacity'),
          usageLimit: p.number('usageLimit'),
          fairness: fairnessNames.find((name) => name === p.text('fairness')) ?? 'global-strict',
          service: {
            serviceWeight: p.number('serviceWeight'),
            waitWeight: p.number('waitWeight'),
            halfLifeUs: p.number('halfLifeUs'),
          },
          order: p.text('order') === 'slo-deadline' ? 'slo-deadline' : 'fifo',
          sheds: p.flag('shedding'),
          targetsUs: p.numbers('targetsUs'),
        }),
        saturation: (cluster) => {
          if (detector === 'never') return 0;
          if (detector === 'concurrency') return concurrencySaturation(cluster, caps);
          return utilizationSaturation(cluster, p.number('queueThreshold'), p.number('kvThreshold'));
        },
      };
    },
  },
});
