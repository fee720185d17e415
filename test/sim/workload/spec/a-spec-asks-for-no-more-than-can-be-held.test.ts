import { describe, expect, it } from 'vitest';
import { parseWorkloadSpec } from '../../../../src/sim/description/readWorkload.ts';
import { parseProfile } from '../../../../src/sim/workload/presets.ts';
import { requestsOf, type WorkloadRequest } from '../../../../src/sim/workload/request.ts';
import { generateWorkload } from '../../../../src/sim/workload/workload.ts';
import { client, drain, spec, turns } from './smallSpec.ts';

const all = (of: ReturnType<typeof spec>): WorkloadRequest[] => [
  ...requestsOf(generateWorkload(of).stream()),
];
describe('a conversation of any number of rounds', () => {
  it('costs only the requests that are taken: ten of a hundred thousand rounds', () => {
    const requests = all(
      spec('aggregate_rate: 1\nnum_requests: 10', turns(100_000, ', context_growth: accumulate')),
    );
    expect(requests.map((request) => request.round)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    requests.forEach(({ prompt, inputTokens }, round) => {
      expect(inputTokens).toBe(10 + 15 * round);
      if (prompt.kind !== 'drawn') throw new Error('not drawn');
      expect(prompt.spans).toHaveLength(2 * round + 1);
      expect(prompt.spans.reduce((sum, span) => sum + span.tokens, 0)).toBe(inputTokens);
    });
  });

  it('gives the same requests for any number taken', () => {
    const some = (count: number): WorkloadRequest[] =>
      all(
        spec(
          `seed: 7\naggregate_rate: 100\nnum_requests: ${count}`,
          turns(6, ', context_growth: accumulate'),
        ),
      );
    const [few, many] = [some(20), some(200)];
    const plain = (request: WorkloadRequest): unknown => ({
      ...request,
      prompt: request.prompt.kind === 'drawn' ? request.prompt.spans : [],
    });
    expect(few.map(plain)).toEqual(many.slice(0, 20).map(plain));
  });
});

it('a ramp to a rate that no clock can count is refused', () => {
  expect(() => parseProfile('ramp:from=1,to=1e308,duration=60')).toThrow(
    /^profile has to=1e308\. Set to to a number from 0 to 1000000\.$/,
  );
});

it('more clients, users or parts of a request than can be held are errors', () => {
  const cohorts = Array.from({ length: 11 }, (_, i) =>
    client('    population: 100000').replace('- id: a', `- id: c${i}`),
  ).join('');
  const crowd = parseWorkloadSpec(
    `version: "2"\naggregate_rate: 1\nnum_requests: 1\ncohorts:${cohorts}`,
    's.yaml',
  );
  expect(drain(crowd)).toThrow(/cohorts asks for 1100000 clients, more than 500000/);
  const users = client('    concurrency: 9000000').replace('    rate_fraction: 1\n', '');
  const text = `version: "2"\nnum_requests: 20000000\nclients:${users}${users.replace('- id: a', '- id: b')}`;
  expect(drain(parseWorkloadSpec(text, 's.yaml'))).toThrow(/concurrency asks for 18000000 users in all/);
  const mix =
    '    multimodal: {image_distribution: {type: constant, params: {value: 1}}, ' +
    'image_count_distribution: {type: constant, params: {value: 90000000}}}';
  expect(drain(spec('aggregate_rate: 1\nnum_requests: 1', mix))).toThrow(
    /drew 90000000 parts of one request/,
  );
});

describe('a length that no request has', () => {
  it.each([
    ['lognormal', 'mu: 700, sigma: 1', /mu is 700\. Set it to a number of at least -100 and at most 18/],
    ['lognormal', 'mu: 700, sigma: 1, max: 50', /mu is 700/],
    ['lognormal', 'mu: 1, sigma: 1e9', /sigma is 1000000000/],
    ['exponential', 'mean: 1e308', /mean is 1e\+308/],
    ['gaussian', 'mean: 1e308, std_dev: 1, min: 1, max: 9', /mean is 1e\+308/],
    ['pareto_lognormal', 'alpha: 1e-9, xm: 1, mu: 1, sigma: 1, mix_weight: 0.5', /alpha is 1e-9/],
    ['constant', 'value: 1e15', /value is 1000000000000000/],
    ['empirical', '99999999999: 1', /99999999999 is longer than a request may be/],
    ['constructor', 'value: 1', /has the unknown type "constructor"/],
    ['constant', 'value: 1, toString: 2', /toString is not a parameter of constant/],
  ])('%s with %s is refused where it stands', (type, params, message) => {
    const text = client('').replace(
      '{type: constant, params: {value: 10}}',
      `{type: ${type}, params: {${params}}}`,
    );
    const parse = (): unknown =>
      parseWorkloadSpec(`version: "2"\naggregate_rate: 1\nclients:${text}`, 's.yaml');
    expect(parse).toThrow(message);
    expect(parse).toThrow(/^s\.yaml:\d+: clients\[0\]\.input_distribution/);
  });

  it('but the longest contexts are lengths', () => {
    const text = client('').replace('value: 10}', 'value: 10000000}');
    const of = parseWorkloadSpec(
      `version: "2"\naggregate_rate: 1\nnum_requests: 2\nclients:${text}`,
      's.yaml',
    );
    expect(all(of).map(({ inputTokens }) => inputTokens)).toEqual([10_000_000, 10_000_000]);
  });
});
