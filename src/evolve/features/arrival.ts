/** Signals of a request as it joins the queue of an instance, for that instance's scheduler. */

import { SloPriorities } from '../../sim/control/index.ts';
import type { InstanceEngine, SimRequest } from '../../sim/instance/index.ts';
import { type FeatureTable, makers } from './feature.ts';

export interface ArrivalFacts {
  readonly request: SimRequest;
  readonly engine: Pick<InstanceEngine, 'waitingCount' | 'runningCount' | 'cachedBlocks'>;
  readonly nowUs: number;
}

const classes = new SloPriorities();
const { int, text } = makers<ArrivalFacts>();

export const arrivalFeatures: FeatureTable<ArrivalFacts> = {
  nowUs: int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  promptTokens: int('tokens', 'constant', 'length of the prompt', ({ request }) => request.promptTokens),
  cachedBlocks: int(
    'blocks',
    'fresh',
    'leading blocks of the prompt that this instance has in HBM',
    ({ request, engine }) =>
      engine.cachedBlocks(request.keys, Math.min(request.promptBlocks, request.keys.length)),
  ),
  waitedUs: int('µs', 'fresh', 'time since its arrival', ({ request, nowUs }) => nowUs - request.arrivalUs),
  ttftTargetUs: int(
    'µs',
    'constant',
    'time to the first token that it asks for, 0 for none',
    ({ request }) => request.sloTargetUs,
  ),
  classPriority: int('', 'constant', 'urgency of its class', ({ request }) => classes.of(request.sloClass)),
  rank: int('', 'fresh', 'of the priority policy: lower is more urgent', ({ request }) => request.priority),
  sloClass: text('name of its class, "" for none', ({ request }) => request.sloClass),
  tenantId: text('name of its tenant, "" for none', ({ request }) => request.tenantId),
  waiting: int('requests', 'fresh', 'that wait on the instance', ({ engine }) => engine.waitingCount),
  running: int('requests', 'fresh', 'in its batch', ({ engine }) => engine.runningCount),
};
