import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { nearestName, TierKVError } from '../../../../src/runtime/errors.ts';
import { parseWorkloadSpec } from '../../../../src/sim/description/readWorkload.ts';
import { formatWorkloadSpec } from '../../../../src/sim/description/writeWorkload.ts';

const CLIENT = `
  - id: a
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 10}}
    output_distribution: {type: constant, params: {value: 5}}`;
const with_ = (extra: string, top: string = ''): string =>
  `version: "2"\naggregate_rate: 5\n${top}clients:${CLIENT}\n${extra}`;

/** The error of a text that may not parse. */
function errorOf(text: string): TierKVError {
  try {
    parseWorkloadSpec(text, 'spec.yaml');
  } catch (error) {
    expect(error).toBeInstanceOf(TierKVError);
    return error as TierKVError;
  }
  throw new Error(`this parsed:\n${text}`);
}

const swap = (from: string, to: string): string => {
  const text = with_('');
  expect(text).toContain(from);
  return text.replace(from, to);
};

const BAD: ReadonlyArray<readonly [name: string, text: string, message: RegExp]> = [
  ['no YAML', 'clients: [}', /^spec\.yaml:1: not valid YAML: /],
  ['a list', '- a\n- b', /^spec\.yaml:1: holds no mapping of keys/],
  ['a key twice', with_('', 'seed: 1\nseed: 2\n'), /^spec\.yaml:4: not valid YAML: .*unique/],
  [
    'an alias inside itself',
    'version: "2"\nclients: &c\n  - *c\n',
    /^spec\.yaml:\d+: an alias contains itself/,
  ],
  [
    'a mistyped top key',
    with_('', 'agregate_rate: 3\n'),
    /^spec\.yaml:3: agregate_rate is not a key here\. Did you mean "aggregate_rate"\?/,
  ],
  [
    'a mistyped client key',
    with_('    slo_clas: batch'),
    /^spec\.yaml:9: clients\[0\]\.slo_clas is not a key here\. Did you mean "slo_class"\?/,
  ],
  [
    'a mistyped parameter',
    swap('{value: 10}', '{valeu: 10}'),
    /clients\[0\]\.input_distribution\.params\.valeu is not a parameter of constant\. Did you mean "value"\?/,
  ],
  [
    'a mistyped class',
    with_('    slo_class: standart'),
    /clients\[0\]\.slo_class is "standart"\. Did you mean "standard"\?/,
  ],
  [
    'a mistyped process',
    swap('poisson', 'poison'),
    /clients\[0\]\.arrival\.process is "poison"\. Did you mean "poisson"\?/,
  ],
  [
    'a mistyped type',
    swap('type: constant, params: {value: 10}', 'type: gausian, params: {mean: 1}'),
    /input_distribution has the unknown type "gausian"\. Did you mean "gaussian"\?/,
  ],
  [
    'a negative rate',
    swap('aggregate_rate: 5', 'aggregate_rate: -5'),
    /^spec\.yaml:2: aggregate_rate is -5\. Set it to a finite number of at least 0/,
  ],
  [
    'a negative fraction',
    swap('rate_fraction: 1', 'rate_fraction: -1'),
    /clients\[0\]\.rate_fraction is -1\. Set it to a finite number of at least 0/,
  ],
  [
    'no rate',
    swap('aggregate_rate: 5', 'aggregate_rate: 0'),
    /aggregate_rate is 0 and clients\[0\] has no trace_rate/,
  ],
  ['an infinite rate', swap('aggregate_rate: 5', 'aggregate_rate: .inf'), /aggregate_rate is Infinity/],
  [
    'no mass: min above max',
    swap(
      'type: constant, params: {value: 10}',
      'type: gaussian, params: {mean: 5, std_dev: 1, min: 9, max: 2}',
    ),
    /input_distribution has no mass: min 9 is above max 2\. Exchange them/,
  ],
  [
    'no mass: weights of 0',
    swap('type: constant, params: {value: 10}', 'type: empirical, params: {10: 0, 20: 0}'),
    /input_distribution has no mass\. Give at least one bin a positive weight/,
  ],
  [
    'a bin that is not a count',
    swap('type: constant, params: {value: 10}', 'type: empirical, params: {10a: 1}'),
    /params\.10a is not a token count/,
  ],
  [
    'a missing parameter',
    swap('type: constant, params: {value: 10}', 'type: gaussian, params: {mean: 5}'),
    /std_dev is missing\. A gaussian distribution needs: mean, std_dev, min, max/,
  ],
  [
    'a missing distribution',
    swap('    output_distribution: {type: constant, params: {value: 5}}', ''),
    /clients\[0\]\.output_distribution is missing/,
  ],
  [
    'a prefix without a group',
    with_('    prefix_length: 64'),
    /clients\[0\]\.prefix_length has no prefix_group\. Name the group/,
  ],
  [
    'a window that ends before it starts',
    with_('    lifecycle: {windows: [{start_us: 9, end_us: 3}]}'),
    /clients\[0\]\.lifecycle\.windows\[0\]\.end_us is 3, not after start_us 9/,
  ],
  ['no windows', with_('    lifecycle: {windows: []}'), /clients\[0\]\.lifecycle\.windows is empty/],
  [
    'concurrency beside a rate',
    with_('    concurrency: 3'),
    /clients\[0\]\.rate_fraction excludes concurrency\. Keep one of them/,
  ],
  [
    'rounds below 1',
    with_('    reasoning: {multi_turn: {max_rounds: 0}}'),
    /max_rounds is 0\. Set it to a finite number of at least 1/,
  ],
  ['half a number', with_('    timeout: 1.5'), /clients\[0\]\.timeout is 1\.5\. Set it to an integer/],
  [
    'an unknown growth',
    with_('    reasoning: {multi_turn: {max_rounds: 2, context_growth: acumulate}}'),
    /context_growth is "acumulate"\. Did you mean "accumulate"\?/,
  ],
  [
    'a Weibull CV out of reach',
    swap('{process: poisson}', '{process: weibull, cv: 11}'),
    /arrival\.cv is 11\. A Weibull process reaches 0\.01 to 10\.4/,
  ],
  [
    'classes for some',
    `${with_('    slo_class: batch')}${CLIENT.replace('id: a', 'id: b')}`,
    /clients mixes: clients\[1\] has no slo_class but clients\[0\] has one/,
  ],
  ['two sources', with_('', 'servegen_data: {path: x}\n'), /servegen_data excludes clients/],
  [
    'no source',
    'version: "2"\naggregate_rate: 1\n',
    /clients is empty\. Give a client, a cohort, inference_perf or servegen_data/,
  ],
  ['an unknown version', swap('version: "2"', 'version: "3"'), /version is "3"/],
  [
    'a seed beyond 64 bits',
    with_('', 'seed: 99999999999999999999\n'),
    /seed is 99999999999999999999\. Set it to an integer of 64 bits/,
  ],
  ['a negative horizon', with_('', 'horizon: -1\n'), /horizon is -1/],
  ['a text for a number', swap('aggregate_rate: 5', 'aggregate_rate: fast'), /aggregate_rate is fast/],
  [
    'a mapping for a list',
    'version: "2"\naggregate_rate: 1\nclients: {a: 1}\n',
    /clients is not a list\. Start each entry with a dash/,
  ],
  [
    'a population of 0',
    `version: "2"\naggregate_rate: 1\ncohorts:${CLIENT}\n    population: 0\n`,
    /cohorts\[0\]\.population is 0/,
  ],
  [
    'per-member prefixes without a group',
    'version: "2"\naggregate_rate: 1\ncohorts:' +
      CLIENT +
      '\n    population: 2\n    prefix_sharing: per_member\n',
    /cohorts\[0\]\.prefix_sharing has no prefix_group/,
  ],
  [
    'a stage without time',
    'version: "2"\ninference_perf: {stages: [{rate: 1, duration: 0}], shared_prefix: {num_unique_system_prompts: 1, num_users_per_system_prompt: 1}}\n',
    /inference_perf\.stages\[0\]\.duration is 0/,
  ],
];

describe('a spec that is wrong', () => {
  it.each(BAD)('%s', (_name, text, message) => {
    const error = errorOf(text);
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain('\n');
    expect(error.code).toBe('TKV_INPUT');
    expect(error.path).toBe('spec.yaml');
    expect(error.line).toBeGreaterThan(0);
  });
});

describe('a spec that is right', () => {
  it('keeps all bits of a seed, and reads horizons beyond 2^53 as no horizon', () => {
    const spec = parseWorkloadSpec(
      with_('', 'seed: -9223372036854775808\nhorizon: 9223372036854775807\n'),
      's',
    );
    expect(spec.seed).toBe(-(2n ** 63n));
    expect(spec.horizonUs).toBe(Infinity);
  });

  it('upgrades the class names of version 1', () => {
    const text = with_('    slo_class: realtime').replace('version: "2"', 'version: "1"');
    expect(parseWorkloadSpec(text, 's').clients[0].sloClass).toBe('critical');
    expect(errorOf(with_('    slo_class: realtime')).message).toMatch(/slo_class is "realtime"/);
  });

  it('resolves anchors and reads bins from a file', () => {
    const text = with_('')
      .replace('{type: constant, params: {value: 10}}', '&d {type: empirical, file: bins.csv}')
      .replace('{type: constant, params: {value: 5}}', '*d');
    const spec = parseWorkloadSpec(text, 's', {
      readFile: (name) => (name === 'bins.csv' ? 'tokens,weight\n10,1\n20,3\n' : ''),
    });
    expect(spec.clients[0].outputLength).toEqual({
      type: 'empirical',
      bins: [
        [10, 1],
        [20, 3],
      ],
    });
  });

  const examples = readdirSync(new URL('../fixtures/specs/', import.meta.url));
  it.each(examples)('%s reads back from its own text', (name) => {
    const spec = parseWorkloadSpec(
      readFileSync(new URL(`../fixtures/specs/${name}`, import.meta.url), 'utf8'),
      name,
    );
    expect(parseWorkloadSpec(formatWorkloadSpec(spec), name)).toEqual(spec);
  });

  it('with every key reads back from its own text', () => {
    const spec = parseWorkloadSpec(
      readFileSync(new URL('../fixtures/every-key.yaml', import.meta.url), 'utf8'),
      'every-key.yaml',
    );
    expect(spec.clients).toHaveLength(4);
    expect(spec.cohorts).toHaveLength(2);
    expect(parseWorkloadSpec(formatWorkloadSpec(spec), 'written')).toEqual(spec);
  });
});

describe('nearest names', () => {
  it('finds slips and leaves strangers alone', () => {
    const names = ['aggregate_rate', 'num_requests', 'seed'];
    expect(nearestName('agregate_rate', names)).toBe('aggregate_rate');
    expect(nearestName('num-requests', names)).toBe('num_requests');
    expect(nearestName('sede', names)).toBe('seed');
    expect(nearestName('colour', names)).toBeUndefined();
  });
});
