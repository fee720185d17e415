/** Priority policies by name. */

import { type NumberRule, PolicyRegistry } from '../registry/index.ts';
import { ConstantPriority, DeadlinePriority, FairSharePriority, SloClassPriority } from './policies.ts';
import type { PriorityPolicy } from './priorityPolicy.ts';
import { SloPriorities } from './sloPriorities.ts';

export type { PriorityPolicy } from './priorityPolicy.ts';
export { defaultSloPriorities, SloPriorities } from './sloPriorities.ts';

const priorityRule: NumberRule = { kind: 'number', default: 0, min: -100, max: 100, integer: true };
/** Priorities of SLO classes that differ from upstream's. */
const priorities = { kind: 'numbers', default: {}, each: priorityRule } as const;

export const priorityPolicies: PolicyRegistry<PriorityPolicy> = new PolicyRegistry<PriorityPolicy>(
  'priority',
  {
    'slo-class': {
      about: 'by SLO class, as upstream',
      parameters: { priorities },
      make: (p) => new SloClassPriority(new SloPriorities(p.numbers('priorities'))),
    },
    constant: {
      about: 'all alike',
      parameters: { priorities, score: { kind: 'number', default: 0 } },
      make: (p) => new ConstantPriority(new SloPriorities(p.numbers('priorities')), p.number('score')),
    },
    'slo-deadline': {
      about: 'earliest due first, with a credit for the class',
      parameters: {
        priorities,
        targetsUs: { kind: 'numbers', default: {}, each: { kind: 'number', default: 0, above: 0 } },
        classWeightUs: { kind: 'number', default: 1_000_000, min: 0, max: 1e12 },
      },
      make: (p) =>
        new DeadlinePriority(
          new SloPriorities(p.numbers('priorities')),
          p.numbers('targetsUs'),
          p.number('classWeightUs'),
        ),
    },
    'fair-share': {
      about: 'by SLO class, less for tenants with more in flight than their share',
      parameters: {
        priorities,
        penaltyPerRequest: { kind: 'number', default: 0.1, min: 0, max: 100 },
        most: { kind: 'number', default: 1, min: 0, max: 100 },
      },
      make: (p) =>
        new FairSharePriority(
          new SloPriorities(p.numbers('priorities')),
          p.number('penaltyPerRequest'),
          p.number('most'),
        ),
    },
  },
);
