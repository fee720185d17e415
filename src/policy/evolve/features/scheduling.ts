/**
 * Signals of the requests of one instance, for its scheduler: as one joins the queue, while it waits, and
 * while it runs. The instance reads them itself, so none of them is old.
 */

import type { RequestProgress } from '../../../runtime/batching/scheduler.ts';
import { SloPriorities } from '../../../sim/control/priority.ts';
import type { EngineConfig, InstanceEngine } from '../../../sim/instance/engine.ts';
import type { SimRequest } from '../../../sim/instance/simRequest.ts';
import { type FeatureTable, makers } from './feature.ts';

/** Facts of an instance, for its scheduler. */
export interface EngineFacts {
  readonly engine: Pick<InstanceEngine, 'waitingCount' | 'runningCount' | 'cachedBlocks' | 'tiers'> & {
    readonly config: Pick<EngineConfig, 'blockTokens' | 'topBlocks' | 'scheduler'>;
  };
  readonly nowUs: number;
}

export interface SchedulingFacts extends EngineFacts {
  readonly request: SimRequest;
  readonly progress: RequestProgress;
}

const classes = new SloPriorities();
const ofEngine = makers<EngineFacts>();
const { int, text } = makers<SchedulingFacts>();

/** Leading blocks of the prompt in HBM. */
export function cachedBlocks({ request, engine }: SchedulingFacts): number {
  return engine.cachedBlocks(request.keys, Math.min(request.promptBlocks, request.keys.length));
}

/** Tokens to compute before the request's next token. */
export function uncachedTokens(facts: SchedulingFacts): number {
  const { knownTokens, computedTokens } = facts.progress;
  const found = computedTokens > 0 ? computedTokens : cachedBlocks(facts) * facts.engine.config.blockTokens;
  return Math.max(1, knownTokens - found);
}

/** A due time after all others. */
const NEVER_US = 1e300;

/** Due time of the first token; a request without a target is due after all others. */
export function dueUs({ request: { arrivalUs, sloTargetUs } }: SchedulingFacts): number {
  return sloTargetUs > 0 ? arrivalUs + sloTargetUs : NEVER_US;
}

/** Features of one request. At its arrival it has its prompt alone, and nothing is computed. */
export const schedulingFeatures: FeatureTable<SchedulingFacts> = {
  nowUs: int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  promptTokens: int('tokens', 'constant', 'length of the prompt', ({ request }) => request.promptTokens),
  cachedBlocks: int(
    'blocks',
    'fresh',
    'leading blocks of the prompt that its instance has in HBM',
    cachedBlocks,
  ),
  waitedUs: int('µs', 'fresh', 'time since its arrival', ({ request, nowUs }) => nowUs - request.arrivalUs),
  ttftTargetUs: int(
    'µs',
    'constant',
    'time to the first token that it asks for, 0 for none',
    ({ request }) => request.sloTargetUs,
  ),
  classPriority: int('', 'constant', 'urgency of its class', ({ request }) => classes.of(request.sloClass)),
  rank: int(
    '',
    'fresh',
    'of the priority policy, or of on_arrival where there is one: lower is more urgent',
    ({ request }) => request.priority,
  ),
  sloClass: text('name of its class, "" for none', ({ request }) => request.sloClass),
  tenantId: text('name of its tenant, "" for none', ({ request }) => request.tenantId),
  waiting: int('requests', 'fresh', 'that wait on the instance', ({ engine }) => engine.waitingCount),
  running: int('requests', 'fresh', 'in its batch', ({ engine }) => engine.runningCount),
  generatedTokens: int(
    'tokens',
    'fresh',
    'that it has generated so far',
    ({ request, progress }) => progress.knownTokens - request.promptTokens,
  ),
  computedTokens: int(
    'tokens',
    'fresh',
    'whose KV it holds, and loses when it gives way',
    ({ progress }) => progress.computedTokens,
  ),
  uncachedTokens: int('tokens', 'fresh', 'to be computed before its next token comes out', uncachedTokens),
  preemptions: int('', 'fresh', 'how often it gave way so far', ({ progress }) => progress.preemptions),
};

/** Features of the instance. */
export const engineFeatures: FeatureTable<EngineFacts> = {
  nowUs: ofEngine.int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  waiting: ofEngine.int('requests', 'fresh', 'that wait', ({ engine }) => engine.waitingCount),
  running: ofEngine.int('requests', 'fresh', 'in the batch', ({ engine }) => engine.runningCount),
  freeBlocks: ofEngine.int(
    'blocks',
    'fresh',
    'of HBM, free or evictable',
    ({ engine }) => engine.tiers()[0]?.freeBlocks ?? 0,
  ),
  capacityBlocks: ofEngine.int('blocks', 'constant', 'of HBM', ({ engine }) => engine.config.topBlocks),
  blockTokens: ofEngine.int('tokens', 'constant', 'of a block', ({ engine }) => engine.config.blockTokens),
  maxSequences: ofEngine.int(
    'requests',
    'constant',
    'that the batch holds at most, 0 where it is not said',
    ({ engine }) => engine.config.scheduler.maxSequences ?? 0,
  ),
  maxBatchedTokens: ofEngine.int(
    'tokens',
    'constant',
    'of a step at most, 0 where it is not said',
    ({ engine }) => engine.config.scheduler.maxBatchedTokens ?? 0,
  ),
};
