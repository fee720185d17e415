/** Signals of a request that has ended, for a program's `on_complete`. */

import type { RequestOutcome } from '../../sim/control/policy.ts';
import { type FeatureTable, makers } from './feature.ts';

const { int, bool, text } = makers<RequestOutcome>();

export const outcomeFeatures: FeatureTable<RequestOutcome> = {
  nowUs: int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  instance: int('', 'constant', 'number of the instance where it ended', ({ instance }) => instance),
  completed: bool('constant', 'false for one that was lost or timed out', ({ completed }) => completed),
  promptTokens: int('tokens', 'constant', 'length of its prompt', ({ request }) => request.promptTokens),
  outputTokens: int('tokens', 'constant', 'that it generated', ({ outputTokens }) => outputTokens),
  ttftUs: int('µs', 'constant', 'time to its first token, -1 for none', ({ ttftUs }) => ttftUs),
  e2eUs: int('µs', 'constant', 'time to its end', ({ e2eUs }) => e2eUs),
  ttftTargetUs: int('µs', 'constant', 'what it asked for, 0 for none', ({ request }) => request.sloTargetUs),
  sloClass: text('name of its class, "" for none', ({ request }) => request.sloClass),
  tenantId: text('name of its tenant, "" for none', ({ request }) => request.tenantId),
};
