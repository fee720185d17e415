/** The JSON schema of a bundle (draft 2020-12), made from what the slots accept. */

import type { ParameterRule } from '../../sim/control/index.ts';
import { type PolicySlot, policySlots } from './policyBundle.ts';
import { bundleLimits } from './reading/fields.ts';
import { treeComparisons } from './reading/readTree.ts';
import { slotContracts, treeFeatures } from './slots.ts';

type Schema = Readonly<Record<string, unknown>>;

function strict(properties: Readonly<Record<string, Schema>>, required: readonly string[]): Schema {
  return { type: 'object', properties, required, additionalProperties: false };
}

function ofRule(rule: ParameterRule): Schema {
  const { about } = rule;
  return { ...(about === undefined ? {} : { description: about }), ...valuesOf(rule) };
}

function valuesOf(rule: ParameterRule): Schema {
  switch (rule.kind) {
    case 'flag':
      return { type: 'boolean', default: rule.default };
    case 'choice':
      return { enum: rule.names, default: rule.default };
    case 'number':
      return {
        type: rule.integer === true ? 'integer' : 'number',
        default: rule.default,
        ...(rule.min === undefined ? {} : { minimum: rule.min }),
        ...(rule.above === undefined ? {} : { exclusiveMinimum: rule.above }),
        ...(rule.max === undefined ? {} : { maximum: rule.max }),
      };
    case 'numbers': {
      const { default: _, ...each } = valuesOf(rule.each);
      return {
        type: 'object',
        default: rule.default,
        ...(rule.names === undefined
          ? { additionalProperties: each }
          : {
              properties: Object.fromEntries(rule.names.map((name) => [name, each])),
              additionalProperties: false,
            }),
      };
    }
  }
}

function parameterized(slot: PolicySlot): Schema[] {
  const { templates } = slotContracts[slot];
  return templates.names.map((template) => {
    const { about, parameters } = templates.describe(template);
    const rules = Object.entries(parameters).map(([name, rule]) => [name, ofRule(rule)] as const);
    return {
      description: about,
      ...strict(
        {
          type: { const: 'parameterized' },
          template: { const: template },
          parameters: strict(Object.fromEntries(rules), []),
        },
        ['type', 'template'],
      ),
    };
  });
}

function code(slot: PolicySlot): Schema {
  const { functions, takesSeveral } = slotContracts[slot];
  const names = functions.map(({ name }) => name);
  return strict(
    {
      type: { const: 'code' },
      language: { enum: ['starlark', 'wasm', 'javascript'] },
      source: { type: 'string', maxLength: bundleLimits.sourceCharacters },
      entrypoint: {
        type: 'string',
        ...(takesSeveral === true
          ? { description: `Default: those that it defines, of ${names.join(', ')}.` }
          : { default: names[0] }),
      },
    },
    ['type', 'language', 'source'],
  );
}

function tree(slot: PolicySlot): Schema {
  const { functions, takesSeveral } = slotContracts[slot];
  const names = functions.map(({ name }) => name);
  return strict(
    {
      type: { const: 'decisionTree' },
      root: { $ref: `#/$defs/${slot}Node` },
      ...(takesSeveral === true ? { entrypoint: { enum: names, default: names[0] } } : {}),
    },
    ['type', 'root'],
  );
}

function node(slot: PolicySlot): Schema {
  const child = { $ref: `#/$defs/${slot}Node` };
  const condition = strict(
    {
      feature: { enum: treeFeatures(slot) },
      comparison: { enum: treeComparisons },
      value: { type: 'number' },
    },
    ['feature', 'comparison', 'value'],
  );
  const leaves = Object.entries(slotContracts[slot].actions).map(([action, { about, value }]) => ({
    description: about,
    ...strict(
      { action: { const: action }, ...(value === 'none' ? {} : { value: { type: 'number' } }) },
      value === 'required' ? ['action', 'value'] : ['action'],
    ),
  }));
  const branch = strict({ condition, trueChild: child, falseChild: child }, [
    'condition',
    'trueChild',
    'falseChild',
  ]);
  return { oneOf: [branch, ...leaves] };
}

export function bundleSchema(): Schema {
  const programmable = policySlots.filter((slot) => slotContracts[slot].functions.length > 0);
  const slots = policySlots.map((slot) => {
    const kinds = programmable.includes(slot) ? [code(slot), tree(slot)] : [];
    const schema: Schema = {
      description: slotContracts[slot].about,
      oneOf: [...parameterized(slot), ...kinds],
    };
    return [slot, schema] as const;
  });
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'tierkv policy bundle',
    ...strict(
      {
        ...Object.fromEntries(slots),
        name: { type: 'string' },
        generation: { type: 'integer', minimum: 0 },
        parentId: { type: 'string' },
        mutations: { type: 'array', items: { type: 'string' }, maxItems: bundleLimits.mutations },
      },
      [],
    ),
    anyOf: policySlots.map((slot) => ({ required: [slot] })),
    $defs: Object.fromEntries(programmable.map((slot) => [`${slot}Node`, node(slot)])),
  };
}
