/** Serves requests to their end on a runtime's scheduler, with audits between the steps. */

import type { FinishedRequest, KVRuntime, KVScheduler, KVStepPlan } from '../../../src/index.ts';
import type { ReadingEngine } from './readingEngine.ts';

export interface Serving {
  readonly finished: Map<string, FinishedRequest>;
  /** Steps that brought nothing because bytes were lost. */
  interrupted: number;
  /** How often each request gave way. */
  readonly preempted: string[];
}

/** @param between called before each step that is planned */
export async function serveAll(
  kv: KVRuntime,
  scheduler: KVScheduler,
  engine: ReadingEngine,
  between: (step: number) => void = () => {},
): Promise<Serving> {
  const serving: Serving = { finished: new Map(), interrupted: 0, preempted: [] };
  for (let step = 0; scheduler.size > 0; step++) {
    between(step);
    if (scheduler.size === 0) break;
    const plan = scheduler.step();
    audit(kv, scheduler);
    serving.preempted.push(...plan.preempted);
    if (plan.requests.length === 0) {
      await scheduler.next();
      continue;
    }
    const { interrupted, finished } = await runStep(scheduler, engine, plan);
    audit(kv, scheduler);
    if (interrupted) serving.interrupted++;
    for (const each of finished) serving.finished.set(each.id, each);
  }
  return serving;
}

async function runStep(
  scheduler: KVScheduler,
  engine: ReadingEngine,
  plan: KVStepPlan,
): Promise<ReturnType<KVScheduler['stepEnded']>> {
  let sampled: Awaited<ReturnType<ReadingEngine['run']>>;
  try {
    sampled = await engine.run(plan);
  } catch {
    return scheduler.stepFailed(); // the device was lost under the read-back
  }
  return scheduler.stepEnded(sampled);
}

function audit(kv: KVRuntime, scheduler: KVScheduler): void {
  scheduler.checkIntegrity();
  kv.manager.checkIntegrity();
}
