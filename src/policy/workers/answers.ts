/**
 * Answers as they lie on the server: each with the key of its case, and in the shape of its kind. Other programs may
 * write there too, so that a text is an answer only where both are right.
 */

import * as v from 'valibot';
import type { Unanswered } from '../../io/workerPool.ts';
import { figureNames } from '../../studies/plan/targets.ts';
import type { TrialResult } from '../../studies/plan/trial.ts';
import { type Anomaly, anomalyTypes, severities } from '../evolve/trace/anomalies.ts';
import type { Alternative, Regret } from '../evolve/trace/regret.ts';
import { readPayload, writePayload } from './payload.ts';
import type { TaskAnswer, TaskKind, Tasks } from './thread.ts';

/** Bytes of the text of an answer, by kind: an explained case brings the trace of its decisions. */
export const answerBytes: Readonly<Record<TaskKind, number>> = {
  case: 64 * 2 ** 20,
  point: 2 ** 20,
  trial: 2 ** 20,
};

/** Also what is not finite: a mean of nothing. */
const figure = v.custom<number>((value) => typeof value === 'number');
const text = v.string();
const texts = v.array(text);
const count = v.pipe(v.number(), v.integer(), v.minValue(0));

type AnswerShape<K extends TaskKind> = v.GenericSchema<unknown, Tasks[K]['answer']>;

const alternative: v.GenericSchema<unknown, Alternative> = v.object({
  instance: count,
  e2eMs: figure,
  ttftMs: figure,
  meanE2eMs: figure,
});
const regret: v.GenericSchema<unknown, Regret> = v.object({
  decision: count,
  requestId: text,
  chosen: alternative,
  others: v.array(alternative),
  regretMs: figure,
  clusterRegretMs: figure,
});
const anomaly: v.GenericSchema<unknown, Anomaly> = v.object({
  type: v.picklist(anomalyTypes),
  timeUs: figure,
  description: text,
  requests: texts,
  count: figure,
  concerned: figure,
  severity: v.picklist(severities),
});
const metrics = v.pipe(
  v.record(text, figure),
  v.check((value) => Object.keys(value).length > 0),
);
const explanation = v.object({
  summary: text,
  anomalies: v.array(anomaly),
  regrets: v.array(regret),
  trace: texts,
});
const caseAnswer: AnswerShape<'case'> = v.union([
  v.object({ result: v.object({ metrics, explanation: v.exactOptional(explanation) }) }),
  v.object({ error: v.object({ kind: text, message: text, line: v.exactOptional(count) }) }),
]);
const values = v.record(text, text);
const pointAnswer: AnswerShape<'point'> = v.union([
  v.object({
    values,
    steps: texts,
    gpus: figure,
    completed: count,
    injected: count,
    responsesPerS: figure,
    tokensPerS: figure,
    ttftMeanMs: figure,
    ttftP99Ms: figure,
    itlMeanMs: figure,
    itlP99Ms: figure,
    e2eMeanMs: figure,
    e2eP99Ms: figure,
    hitRate: figure,
    preemptions: count,
    warnings: texts,
  }),
  v.object({
    values,
    error: v.object({ code: v.exactOptional(text), field: v.exactOptional(text), message: text }),
  }),
]);
const figures = v.custom<TrialResult['figures']>(
  (value) => v.is(v.record(text, figure), value) && figureNames.every((name) => name in value),
);
const trialAnswer: AnswerShape<'trial'> = v.union([
  v.object({
    injected: count,
    completed: count,
    unservable: count,
    arrivalsPerS: figure,
    figures,
    requestsPerS: figure,
    outputTokensPerS: figure,
    delayP99Ms: figure,
    hitRate: figure,
    hitsByTier: v.record(text, figure),
    preemptions: count,
    busyShare: figure,
    kvShare: figure,
    inFlightHalf: count,
    inFlightEnd: count,
  }),
  v.object({ error: v.object({ code: v.exactOptional(text), message: text }) }),
]);
const unanswered: v.GenericSchema<unknown, Unanswered> = v.object({
  unanswered: v.picklist(['out of time', 'failed', 'ended']),
  message: text,
});
const shapes: { readonly [K in TaskKind]: AnswerShape<K> } = {
  case: caseAnswer,
  point: pointAnswer,
  trial: trialAnswer,
};

export function writeAnswer(key: string, answer: object): string {
  return writePayload({ key, answer });
}

/** @returns undefined for another case, another shape, and the text of another program */
export function readAnswer(kind: TaskKind, key: string, stored: string): TaskAnswer<TaskKind> | undefined {
  let whole: unknown;
  try {
    whole = readPayload(stored);
  } catch {
    return undefined;
  }
  const read = v.safeParse(v.object({ key: v.literal(key), answer: v.unknown() }), whole);
  if (!read.success) return undefined;
  const { answer } = read.output;
  if (!v.is(shapes[kind], answer) && !v.is(unanswered, answer)) return undefined;
  return answer as TaskAnswer<TaskKind>; // it has the shape
}
