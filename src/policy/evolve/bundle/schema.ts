/** The JSON schema of a bundle (draft 2020-12), made from what the slots accept. */

import * as is from '../../../runtime/kinds.ts';
import type { ParameterRule } from '../../../sim/control/registry.ts';
import { Meter } from '../../sandbox/program.ts';
import { type PolicySlot, policySlots } from './policyBundle.ts';
import { bundleLimits, treeComparisons } from './readBundle.ts';
import { observerFunction, type SlotArgument, slotContracts, treeFeatures } from './slots.ts';

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
          ? { description: `Default: the functions that it defines, among ${names.join(', ')}.` }
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

// The contract of a policy as data, and as text for people and prompts. It is made from the tables that the
// runtime uses.

interface SignalDescription {
  readonly name: string;
  readonly kind: string;
  readonly unit: string;
  readonly freshness: string;
  readonly about: string;
}

interface SlotDescription {
  readonly slot: PolicySlot;
  readonly about: string;
  readonly templates: Readonly<
    Record<string, { readonly about: string; readonly parameters: Readonly<Record<string, ParameterRule>> }>
  >;
  /** Functions of which a program defines one, or several where `takesSeveral` says so. */
  readonly functions: readonly {
    readonly name: string;
    readonly arguments: readonly string[];
    readonly returns: string;
  }[];
  readonly takesSeveral: boolean;
  /** Types of the arguments. */
  readonly arguments: Readonly<
    Record<string, { readonly isList: boolean; readonly fields: readonly SignalDescription[] }>
  >;
  readonly actions: Readonly<
    Record<string, { readonly about: string; readonly value: string; readonly unit: string }>
  >;
}

interface PolicyDescription {
  /** Function that programs of admission, priority and routing may define beside their own. */
  readonly observer: { readonly signature: string; readonly fields: readonly SignalDescription[] };
  readonly slots: readonly SlotDescription[];
  readonly limits: { readonly stepsPerCall: number; readonly memoryUnitsPerCall: number };
  readonly state: string;
}

const stateRule =
  'A function with one more parameter gets the state of its program there: in Starlark a dict that it may ' +
  'change, with numbers, texts, booleans, None, and lists, tuples and dicts of them. Nothing else is ' +
  'remembered from call to call.';

function signalsOf(features: SlotArgument['features']): SignalDescription[] {
  return Object.entries(features).map(([name, { kind, unit, freshness, about }]) => {
    return { name, kind, unit, freshness, about };
  });
}

function signalLine({ name, kind, unit, freshness, about }: SignalDescription): string {
  return `- ${name}: ${kind}${unit === '' ? '' : ` in ${unit}`}, ${freshness}: ${about}`;
}

/** Least number of templates with the same parameter for which it is described once. */
const COMMON = 3;

function templateLines(templates: SlotDescription['templates']): string[] {
  const having = new Map<ParameterRule, string[]>();
  for (const [name, { parameters }] of Object.entries(templates)) {
    for (const rule of Object.values(parameters)) having.set(rule, [...(having.get(rule) ?? []), name]);
  }
  const isCommon = (rule: ParameterRule): boolean => (having.get(rule)?.length ?? 0) >= COMMON;
  const lines: string[] = [];
  const common = new Map<string, Set<string>>();
  for (const [name, { about, parameters }] of Object.entries(templates)) {
    const own: string[] = [];
    for (const [parameter, rule] of Object.entries(parameters)) {
      if (isCommon(rule)) {
        const group = (having.get(rule) ?? []).join(', ');
        common.set(group, (common.get(group) ?? new Set()).add(parameterLine(parameter, rule)));
      } else own.push(`${parameter} = ${JSON.stringify(rule.default)}`);
    }
    lines.push(`- ${name}: ${about}${own.length === 0 ? '' : ` (${own.join(', ')})`}`);
  }
  for (const [group, parameters] of common) lines.push('', `Parameters of ${group}:`, ...parameters);
  return lines;
}

function parameterLine(name: string, rule: ParameterRule): string {
  const names = rule.kind === 'choice' ? `, one of ${rule.names.join(', ')}` : '';
  const needed = rule.kind === 'number' && rule.with !== undefined ? `, with ${rule.with.join(' or ')}` : '';
  const about = rule.about === undefined ? '' : `: ${rule.about}`;
  return `- ${name} = ${JSON.stringify(rule.default)}${names}${needed}${about}`;
}

function describeSlot(slot: PolicySlot): SlotDescription {
  const { about, templates, functions, actions, takesSeveral = false } = slotContracts[slot];
  return {
    slot,
    about,
    templates: Object.fromEntries(templates.names.map((name) => [name, templates.describe(name)])),
    functions: functions.map(({ name, arguments: all, returns }) => ({
      name,
      arguments: all.map((input) => input.name),
      returns,
    })),
    takesSeveral,
    arguments: Object.fromEntries(
      functions.flatMap(({ arguments: inputs }) =>
        inputs.map(({ name, features, isList }) => [name, { isList, fields: signalsOf(features) }]),
      ),
    ),
    actions,
  };
}

export function describePolicies(): PolicyDescription {
  const { stepLimit, memoryLimit } = new Meter();
  const [outcome] = observerFunction.arguments;
  return {
    observer: {
      signature: `${observerFunction.name}(${outcome.name}, state)`,
      fields: signalsOf(outcome.features),
    },
    slots: policySlots.map(describeSlot),
    limits: { stepsPerCall: stepLimit, memoryUnitsPerCall: memoryLimit },
    state: stateRule,
  };
}

/** The same as Markdown, ready for a prompt. */
export function descriptionText(slots: readonly PolicySlot[] = policySlots): string {
  is.array('Name slots of policies.').read(slots, 'slots');
  for (const slot of slots) is.oneOf(policySlots).read(slot, 'slots');
  const { slots: all, limits, state, observer } = describePolicies();
  const lines = [
    '# Policies of a tierkv cluster',
    '',
    `A call may take ${limits.stepsPerCall} steps and ${limits.memoryUnitsPerCall} units of ` +
      `memory. It sees no clock but`,
    'nowUs, no chance, no files and no other call.',
    state,
    '',
    'Age of a signal: constant; fresh (counted where it is decided: by the router, or for instanceScheduler',
    'by the instance); snapshot (as old as the last report of the instance, often seconds); cacheSignal (as',
    'old as the last reading of caches).',
  ];
  for (const { slot, about, templates, functions, takesSeveral, arguments: inputs, actions } of all) {
    if (!slots.includes(slot)) continue;
    lines.push('', `## ${slot}: ${about}`, '', 'Templates:');
    lines.push(...templateLines(templates));
    if (functions.length === 0) continue;
    const howMany = takesSeveral ? 'one or more; a tree takes one decision, its entrypoint' : 'one';
    lines.push('', `Functions of a program, of which it defines ${howMany}:`);
    for (const { name, arguments: all, returns } of functions) {
      lines.push(`- ${name}(${all.join(', ')}) returns ${returns}`);
    }
    for (const [name, { isList, fields }] of Object.entries(inputs)) {
      lines.push('', `${name}${isList ? ' (a list of)' : ''}:`);
      lines.push(...fields.map(signalLine));
    }
    lines.push('', 'Actions of a decision tree:');
    for (const [action, { about: what, value, unit }] of Object.entries(actions)) {
      lines.push(`- ${action}${value === 'none' ? '' : ` value (${unit})`}: ${what}`);
    }
  }
  lines.push(
    '',
    `## ${observer.signature}: programs of admission, priority and routing may define it`,
    '',
    'It is called as each routed request ends, and changes nothing but the state. outcome:',
    ...observer.fields.map(signalLine),
  );
  return `${lines.join('\n')}\n`;
}
