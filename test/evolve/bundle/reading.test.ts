import { describe, expect, test } from 'vitest';
import { policySlots } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { policyId, presets } from '../../../src/policy/evolve/bundle/presets.ts';
import { parseBundle, readBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import { bundleSchema, descriptionText } from '../../../src/policy/evolve/bundle/schema.ts';
import { slotContracts } from '../../../src/policy/evolve/bundle/slots.ts';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';

function problemOf(json: string): string {
  try {
    parseBundle(json);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return 'none';
}

const leaf = (node: string): string => `{"routing":{"type":"decisionTree","root":${node}}}`;

describe('a bundle that cannot be is refused in one line with field and remedy', () => {
  test.each([
    ['{', /^bundle is not JSON: .* Correct it there\.$/],
    ['[]', /^bundle must be an object, and it is an array\. Pass an object\.$/],
    [
      '{}',
      /^bundle holds no slot, so it decides nothing\. Give it one or more of admission, priority, routing, instanceScheduler, autoScale, eviction\.$/,
    ],
    ['{"name":"mine","generation":3}', /^bundle holds no slot/],
    ['{"routng":{}}', /^routng is not known .*Did you mean routing\?$/],
    ['{"routing":{}}', /^routing\.type is missing\. Set it to "parameterized", "code" or "decisionTree"\.$/],
    [
      '{"routing":"lor"}',
      /^routing is "lor", not an object\. Give it \{"type": "parameterized", "template": "lor"\}/,
    ],
    ['{"routing":{"type":"parameterized"}}', /^routing\.template is missing\. Set it to "round-robin", /],
    ['{"routing":{"type":"code","source":""}}', /^routing\.language is missing\. Set it to "starlark", /],
    ['{"eviction":{"type":"code"}}', /^eviction\.type is "code"\. Set it to "parameterized"\.$/],
    ['{"routing":{"type":"parameterized","template":"loor"}}', /^routing\.template .*Did you mean lor\?$/],
    [
      '{"admission":{"type":"parameterized","template":"tier-shed","parameters":{"treshold":1}}}',
      /^admission\.parameters\.treshold .*Did you mean threshold\?$/,
    ],
    [
      '{"admission":{"type":"parameterized","template":"tier-shed","parameters":{"threshold":-1}}}',
      /^admission\.threshold is -1, not an integer of at least 0\. Set admission\.threshold to/,
    ],
    [
      '{"routing":{"type":"parameterized","template":"llm-d","parameters":{"minPrefixMatch":2}}}',
      /^routing\.minPrefixMatch is 2, not a number above 0 and up to 1\. Set routing\.minPrefixMatch to a number above 0 and up to 1\.$/,
    ],
    [
      '{"routing":{"type":"code","language":"python","source":""}}',
      /^routing\.language .*Known: starlark, wasm, javascript\.$/,
    ],
    [leaf('{"action":"score"}'), /^routing\.root\.value is missing\. The action score takes a number/],
    [
      '{"admission":{"type":"decisionTree","root":{"action":"delay","value":-5}}}',
      /^admission\.root\.value is -5\. The action delay takes µs of at least 0\.$/,
    ],
    [leaf('{}'), /^routing\.root\.action is missing\. Set it to "score", /],
    [
      leaf('{"condition":{"feature":"queueDepth","comparison":"<","value":1}}'),
      /^routing\.root\.condition\.feature is "queueDepth"\. Write "instance\.queueDepth"\.$/,
    ],
    [
      leaf('{"condition":{"feature":"request.sloClass","comparison":"==","value":1}}'),
      /^routing\.root\.condition\.feature is "request\.sloClass", a text\. .* request\.classPriority/,
    ],
    [leaf('{"action":"loor"}'), /^routing\.root\.action .*Did you mean lor\?$/],
    [
      leaf('{"condition":{"feature":"instance.inflight","comparison":"<","value":1}}'),
      /^routing\.root\.condition\.feature .*Did you mean instance\.inFlight\?$/,
    ],
    [
      leaf('{"condition":{"feature":"instance.inFlight","comparison":"=","value":1}}'),
      /^routing\.root\.condition\.comparison is "="\. Use one of < <= > >= == !=\.$/,
    ],
    [
      '{"admission":{"type":"decisionTree","root":{"action":"admit","value":3}}}',
      /^admission\.root\.value is 3\. The action admit takes none: leave it out\.$/,
    ],
    [
      '{"generation":-1}',
      /^generation is -1, not an integer of at least 0\. Set generation to an integer of at least 0\.$/,
    ],
    ['{"mutations":[3]}', /^mutations\[0\] must be text, and it is 3\. Pass text\.$/],
  ])('%s', (json, message) => {
    const problem = problemOf(json);
    expect(problem).toMatch(message);
    expect(problem.split('\n')).toHaveLength(1);
  });

  test('a tree has its limits', () => {
    let node = '{"action":"lor"}';
    for (let depth = 0; depth < 70; depth++) {
      node = `{"condition":{"feature":"instance.load","comparison":"<","value":${depth}},"trueChild":${node},"falseChild":{"action":"llq"}}`;
    }
    expect(problemOf(leaf(node))).toMatch(
      /^routing\.root is more than 64 deep\. Keep to 4096 nodes, 64 deep\.$/,
    );
  });
});

describe('policyId', () => {
  const lor = { type: 'parameterized', template: 'lor', parameters: {} } as const;

  test('names what decides, and nothing else', () => {
    const id = policyId({ routing: lor });
    expect(id).toMatch(/^[0-9a-f]{16}$/);
    expect(policyId({ routing: lor, name: 'x', generation: 3, parentId: 'y', mutations: ['z'] })).toBe(id);
    expect(policyId({ routing: { ...lor, parameters: { ties: 'lowest' } } })).toBe(id);
    expect(policyId({ routing: { ...lor, parameters: { ties: 'random' } } })).not.toBe(id);
    expect(policyId({ routing: { ...lor, template: 'llq' } })).not.toBe(id);
    const scored = (scorers: Record<string, number>): string =>
      policyId({ routing: { type: 'parameterized', template: 'evolved', parameters: { scorers } } });
    expect(scored({ 'prefix-affinity': 1, 'load-balance': 1 }), 'the first scorer counts otherwise').not.toBe(
      scored({ 'load-balance': 1, 'prefix-affinity': 1 }),
    );
  });

  test('stays what it was, so that kept results stay found', () => {
    expect(policyId({ routing: lor })).toBe('b0cae49445f31e08');
  });
});

describe('presets', () => {
  test('are all named policies of the catalogue, each read back as it is written', () => {
    const names = policySlots.flatMap((slot) =>
      slotContracts[slot].templates.names.map((template) => `${slot}/${template}`),
    );
    expect([...presets.keys()]).toEqual(names);
    expect(names.length).toBeGreaterThan(35);
    for (const bundle of presets.values()) {
      expect(readBundle(JSON.parse(JSON.stringify(bundle)))).toEqual(bundle);
    }
    expect(new Set([...presets.values()].map(policyId)).size).toBeGreaterThan(35);
  });
});

describe('what describes policies', () => {
  test('says which decision of the instance scheduler a tree takes', () => {
    const names = ['on_arrival', 'make_batch', 'select_preemption_victim'];
    const { properties } = bundleSchema() as {
      properties: Record<string, { oneOf: { properties: object }[] }>;
    };
    const entrypoints = (slot: string): unknown[] =>
      properties[slot].oneOf
        .flatMap(({ properties: each }) => ('root' in each ? [each] : []))
        .map((each) => {
          return 'entrypoint' in each ? each.entrypoint : undefined;
        });
    expect(entrypoints('instanceScheduler')).toEqual([{ enum: names, default: 'on_arrival' }]);
    expect(entrypoints('routing')).toEqual([undefined]);
    const root = { action: 'rank', value: 1 };
    for (const entrypoint of names) {
      const bundle = { instanceScheduler: { type: 'decisionTree', root, entrypoint } };
      expect(readBundle(JSON.parse(JSON.stringify(bundle)))).toEqual(bundle);
    }
  });

  test('says what a filter does once for all templates that have it, and when it counts', () => {
    const text = descriptionText(['routing']);
    expect(text.match(/^- minPrefixMatch = .*$/gm)).toEqual([
      '- minPrefixMatch = 0.8, with prefixCacheAffinity: share of the prompt',
    ]);
    const weighted = routingPolicies.names.filter(
      (name) => 'sloHeadroomTier' in routingPolicies.describe(name).parameters,
    );
    expect(weighted).toContain('evolved');
    expect(text).toContain(`Parameters of ${weighted.join(', ')}:\n- maxQueueDepth`);
    expect(text).toContain('- concurrencyKind = "none", one of none, requests, tokens, hybrid: leaves out');
    const rule = { description: 'share of the prompt', type: 'number', default: 0.8 };
    expect(JSON.stringify(bundleSchema())).toContain(
      `"minPrefixMatch":${JSON.stringify({ ...rule, exclusiveMinimum: 0, maximum: 1 })}`,
    );
  });

  test('holds every feature, action and template', () => {
    const text = descriptionText();
    const schema = JSON.stringify(bundleSchema());
    for (const slot of policySlots) {
      const { templates, functions, actions } = slotContracts[slot];
      for (const name of [...templates.names, ...Object.keys(actions)]) {
        expect(text).toContain(`- ${name}`);
        expect(schema).toContain(JSON.stringify(name));
      }
      for (const { arguments: inputs } of functions) {
        for (const { features } of inputs) {
          for (const [name, { kind }] of Object.entries(features)) {
            expect(text).toContain(`- ${name}: ${kind}`);
          }
        }
      }
    }
  });
});
