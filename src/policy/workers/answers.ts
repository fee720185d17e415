/**
 * Answers as they lie on the server: each with the key of its case, and in the shape of its kind. Other programs may
 * write there too, so that a text is an answer only where both are right.
 */

import type { Unanswered } from '../../io/workerPool.ts';
import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
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
const figure = is.that<number>('a number', (value) => typeof value === 'number');
const text = is.text();
const texts = is.list(text);
const count = is.integer<number>(0);

type AnswerKind<K extends TaskKind> = is.ValueKind<Tasks[K]['answer']>;

/** An answer with an error, or one without. */
const either = <Answer>(failed: is.ValueKind<object>, done: is.ValueKind<object>): is.ValueKind<Answer> =>
  is.by((answer: Answer, field: string) => {
    is.object().read(answer, field);
    (Object.hasOwn(answer as object, 'error') ? failed : done).read(answer, field);
    return answer;
  });

const alternative = is.fields<Alternative>({
  instance: count,
  e2eMs: figure,
  ttftMs: figure,
  meanE2eMs: figure,
});
const regret = is.fields<Regret>({
  decision: count,
  requestId: text,
  chosen: alternative,
  others: is.list(alternative),
  regretMs: figure,
  clusterRegretMs: figure,
});
const anomaly = is.fields<Anomaly>({
  type: is.oneOf(anomalyTypes),
  timeUs: figure,
  description: text,
  requests: texts,
  count: figure,
  concerned: figure,
  severity: is.oneOf(severities),
});
const figures = is.byName(figure);
const metrics = is.by((value: Readonly<Record<string, number>>, field: string) => {
  if (Object.keys(figures.read(value, field)).length > 0) return value;
  throw new TierKVError('TKV_INPUT', `${field} has no metric. Compute it anew.`, { field });
});
const explanation = is.fields({
  summary: text,
  anomalies: is.list(anomaly),
  regrets: is.list(regret),
  trace: texts,
});
const caseAnswer: AnswerKind<'case'> = either(
  is.fields({ error: is.fields({ kind: text, message: text, line: is.optional(count) }) }),
  is.fields({ result: is.fields({ metrics, explanation: is.optional(explanation) }) }),
);
const values = is.byName(text);
const failure = { code: is.optional(text), message: text };
const pointAnswer: AnswerKind<'point'> = either(
  is.fields({ values, error: is.fields({ ...failure, field: is.optional(text) }) }),
  is.fields({
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
);
const trialFigures = is.fields<TrialResult['figures']>(
  Object.fromEntries(figureNames.map((name) => [name, figure])),
);
const trialAnswer: AnswerKind<'trial'> = either(
  is.fields({ error: is.fields(failure) }),
  is.fields({
    injected: count,
    completed: count,
    unservable: count,
    arrivalsPerS: figure,
    figures: trialFigures,
    requestsPerS: figure,
    outputTokensPerS: figure,
    delayP99Ms: figure,
    hitRate: figure,
    hitsByTier: figures,
    preemptions: count,
    busyShare: figure,
    kvShare: figure,
    inFlightHalf: count,
    inFlightEnd: count,
  }),
);
const unanswered = is.fields<Unanswered>({
  unanswered: is.oneOf(['out of time', 'failed', 'ended']),
  message: text,
});
const answerKinds: { readonly [K in TaskKind]: AnswerKind<K> } = {
  case: caseAnswer,
  point: pointAnswer,
  trial: trialAnswer,
};
const stored = is.fields<{ readonly key: string; readonly answer: unknown }>({
  key: text,
  answer: is.object(),
});

export function writeAnswer(key: string, answer: object): string {
  return writePayload({ key, answer });
}

/** @returns undefined for another case, another shape, and the text of another program */
export function readAnswer(kind: TaskKind, key: string, said: string): TaskAnswer<TaskKind> | undefined {
  let whole: unknown;
  try {
    whole = readPayload(said);
  } catch {
    return undefined;
  }
  if (!is.holds(stored, whole)) return undefined;
  const { key: given, answer } = whole as { readonly key: string; readonly answer: TaskAnswer<TaskKind> };
  if (given !== key || !(is.holds(answerKinds[kind], answer) || is.holds(unanswered, answer)))
    return undefined;
  return answer;
}
