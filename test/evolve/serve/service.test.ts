import { expect, it } from 'vitest';
import { baseline } from '../../../src/policy/evolve/bundle/presets.ts';
import { combinedScore, EvaluationService, type ServiceAnswer } from '../../../src/policy/evolve/serve.ts';
import { WeightEvaluator } from './weightEvaluator.ts';

const program = (weight: number, more = ''): string => `WEIGHT = ${weight}
# EVOLVE-BLOCK-START
def rate(instance):
    return WEIGHT * instance.prefixAffinity${more}
# EVOLVE-BLOCK-END

def score(request, cluster, instances):
    return [rate(instance) for instance in instances]
`;

function service(wallMs = 240_000): EvaluationService {
  return new EvaluationService({ evaluator: new WeightEvaluator(), wallMs });
}

async function evaluate(params: object, wallMs?: number): Promise<ServiceAnswer> {
  const response = await service(wallMs).handle({ id: 1, method: 'evaluate', params });
  if (!('result' in response)) throw new Error(response.error.message);
  return response.result as ServiceAnswer;
}

it('a candidate is answered with score, metrics, cases and artifacts', async () => {
  const answer = await evaluate({ candidate: { routing: program(0.5) } });
  expect(answer.status).toBe('success');
  expect(answer.combined_score).toBeCloseTo(1.5, 12);
  expect(answer.metrics).toMatchObject({ hit_rate: 0.5, gain_latency: 0.5, gain_hits: -0.5, score: 0.5 });
  expect(answer.per_scenario.map(({ id }) => id)).toEqual(['steady/roofline/1', 'bursty/roofline/1']);
  expect(answer.policy_hash).toMatch(/^[0-9a-f]{16}$/);
  expect(answer.artifacts.outcome).toContain('steady/roofline/1: +50.00 %');
});

it('the baseline scores 1, a failure scores 0, and order is kept', () => {
  const scores = [-100, -10, -1, -0.1, 0, 0.2, 3].map(combinedScore);
  expect(scores[4]).toBe(1);
  expect([...scores].sort((a, b) => a - b)).toEqual(scores);
  expect(scores[0]).toBeGreaterThan(0);
});

it('a failed candidate has every metric, as zeros, and an error with a remedy', async () => {
  const good = await evaluate({ candidate: { routing: program(0.5) } });
  for (const [text, kind, hint] of [
    ['def score(:\n', 'compile', /line 1/],
    ['def other(a):\n    return a\n', 'contract', /score/],
    ['{"type": "parameterized", "template": "lorr"}', 'contract', /lor/],
    ['{"type": ', 'compile', /JSON/],
  ] as const) {
    const bad = await evaluate({ candidate: { routing: text } });
    expect(bad.status).toBe('error');
    expect(bad.error?.kind, text).toBe(kind);
    expect(bad.combined_score).toBe(0);
    expect(Object.keys(bad.metrics).sort()).toEqual(Object.keys(good.metrics).sort());
    expect(Object.values(bad.metrics).every((value) => value === 0)).toBe(true);
    expect(bad.artifacts.failure).toMatch(hint);
  }
});

it('a text for a slot may be the JSON of a policy, and a whole bundle is taken as it is', async () => {
  const json = JSON.stringify({ type: 'parameterized', template: 'lor', parameters: {} });
  const asText = await evaluate({ candidate: { routing: json } });
  const { name: _, ...unnamed } = baseline;
  const asBundle = await evaluate({ bundle: { ...unnamed, routing: JSON.parse(json) } });
  expect(asText.policy_hash).toBe(asBundle.policy_hash);
});

it('an edit outside the marked lines is refused, one inside is not', async () => {
  const original = program(0.5);
  const frozen = { routing: original };
  const inside = await evaluate({ candidate: { routing: program(0.5, ' + 0.1') }, frozen });
  expect(inside.status).toBe('success');
  const outside = await evaluate({ candidate: { routing: program(0.6) }, frozen });
  expect(outside.error?.kind).toBe('frozen_region_edited');
  expect(outside.artifacts.failure).toContain('WEIGHT = 0.5');
});

it('an edit outside the marked lines of a bundle is refused too', async () => {
  const frozen = { routing: program(0.5) };
  const bundle = (source: string): object => ({ routing: { type: 'code', language: 'starlark', source } });
  const inside = await evaluate({ bundle: bundle(program(0.5, ' + 0.1')), frozen });
  expect(inside.status).toBe('success');
  const outside = await evaluate({ bundle: bundle(program(0.6)), frozen });
  expect(outside.error?.kind).toBe('frozen_region_edited');
  const other = await evaluate({ bundle: { routing: { type: 'parameterized', template: 'lor' } }, frozen });
  expect(other.error?.kind).toBe('frozen_region_edited');
});

it.each([
  ['in front of the block', program(0.6), 1],
  ['behind it', program(0.5, ' + 0.1\n    # longer').replace('instances]', 'instances if 1]'), 9],
  ['at the end', `${program(0.5)}\nX = 1\n`, 9],
  ['where lines are lacking', program(0.5).split('\n').slice(0, 6).join('\n'), 5],
])('an edit outside the marked lines is told with its line: %s', async (_, text, line) => {
  const { error } = await evaluate({ candidate: { routing: text }, frozen: { routing: program(0.5) } });
  expect(error).toMatchObject({ kind: 'frozen_region_edited', line });
});

it('two clients that use one id are told apart, and cancel ends the request of that id', async () => {
  const shared = service();
  const ask = (text: string): ReturnType<EvaluationService['handle']> =>
    shared.handle({ id: 1, method: 'evaluate', params: { candidate: { routing: text } } });
  const hanging = ask(`${program(0.5)}# hang\n`);
  expect(await ask(program(0.5))).toMatchObject({ result: { status: 'success' } });
  expect(await shared.handle({ id: 2, method: 'status' })).toMatchObject({ result: { running: 1 } });
  expect(await shared.handle({ id: 3, method: 'cancel', params: { id: 1 } })).toMatchObject({
    result: { cancelled: true },
  });
  expect(await hanging).toMatchObject({ result: { status: 'timeout' } });
  expect(await shared.handle({ id: 4, method: 'status' })).toMatchObject({ result: { running: 0 } });
});

it('a candidate over its time gets an error, and others beside it get their results', async () => {
  const shared = service(240_000);
  const ask = (id: number, routing: string, limits = {}): ReturnType<EvaluationService['handle']> =>
    shared.handle({ id, method: 'evaluate', params: { candidate: { routing }, limits } });
  const [hanging, ...good] = await Promise.all([
    ask(1, `${program(0.5)}# hang\n`, { wallMs: 200 }),
    ...[2, 3, 4].map((id) => ask(id, program(id / 10))),
  ]);
  expect('result' in hanging && hanging.result).toMatchObject({ status: 'timeout', combined_score: 0 });
  for (const response of good)
    expect('result' in response && response.result).toMatchObject({ status: 'success' });
});

it('a running request can be cancelled by its id', async () => {
  const shared = service();
  const pending = shared.handle({
    id: 'a',
    method: 'evaluate',
    params: { candidate: { routing: `${program(0.5)}# hang\n` } },
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(await shared.handle({ id: 'b', method: 'cancel', params: { id: 'a' } })).toMatchObject({
    result: { cancelled: true },
  });
  expect(await pending).toMatchObject({ result: { status: 'timeout' } });
});

it('a request can be cancelled while its candidate is bound, and is not evaluated then', async () => {
  const evaluated: string[] = [];
  class Noting extends WeightEvaluator {
    override evaluate(
      ...asked: Parameters<WeightEvaluator['evaluate']>
    ): ReturnType<WeightEvaluator['evaluate']> {
      for (const { routing } of asked[0]) if (routing?.type === 'code') evaluated.push(routing.source);
      return super.evaluate(...asked);
    }
  }
  const shared = new EvaluationService({ evaluator: new Noting() });
  const pending = shared.handle({
    id: 'a',
    method: 'evaluate',
    params: { candidate: { routing: program(0.5) } },
  });
  // before the first turn of the loop its program is not compiled
  const cancel = shared.handle({ id: 'b', method: 'cancel', params: { id: 'a' } });
  expect(await cancel).toMatchObject({ result: { cancelled: true } });
  expect(await pending).toMatchObject({ result: { status: 'timeout', combined_score: 0 } });
  expect(evaluated).toEqual([]);
  expect(await shared.handle({ id: 'c', method: 'status' })).toMatchObject({ result: { running: 0 } });
});

it.each([
  [{ id: 1, method: 'evaluat' }, /Did you mean evaluate/],
  [{ id: 1, method: 'evaluate', params: [] }, /params must be an object/],
  [{ id: 1, method: 'evaluate', params: { suite: 'hidden', candidate: {} } }, /train, validation/],
  [{ id: 1, method: 'evaluate', params: { limits: { wallMs: -1 }, candidate: {} } }, /wallMs is -1/],
  [
    { id: 1, method: 'evaluate', params: { cases: ['steady/rooflin/1'], candidate: {} } },
    /params.cases is not known .*Did you mean steady\/roofline\/1/,
  ],
  [{ id: 1, method: 'evaluate', params: { cases: [], candidate: {} } }, /params.cases must be a list of ids/],
  [[], /request must be an object/],
  [
    { id: 1, method: 'evaluate', params: { sute: 'validation', candidate: {} } },
    /params is not known \("sute"\). Did you mean suite/,
  ],
  [
    { id: 1, method: 'evaluate', params: { limits: { wallms: 5 }, candidate: {} } },
    /params.limits.wallms is unknown here. Did you mean 'wallMs'/,
  ],
  [
    { id: 1, method: 'validate', params: { frozen: { ruting: program(0.5) }, candidate: {} } },
    /params.frozen.ruting is unknown here. Did you mean 'routing'/,
  ],
  [
    { id: 1, method: 'evaluate', params: { frozen: { routing: 7 }, candidate: {} } },
    /params.frozen.routing must be text/,
  ],
])('a request at fault is answered with what to change: %j', async (request, message) => {
  const response = await service().handle(request);
  expect('error' in response && response.error.message).toMatch(message);
});

it('describe gives a text for prompts and the same as data; validate runs nothing', async () => {
  const described = await service().handle({ id: 1, method: 'describe', params: { slots: ['routing'] } });
  if (!('result' in described)) throw new Error('no result');
  const { text, objectives } = described.result as { text: string; objectives: string[] };
  expect(text).toContain('prefixAffinity');
  expect(objectives).toEqual(['latency', 'hits']);
  const params = { candidate: { routing: `${program(0.5)}# hang\n` } };
  expect(await service().handle({ id: 2, method: 'validate', params })).toMatchObject({
    result: { valid: true },
  });
});
