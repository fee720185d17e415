/**
 * The routing of a bundle as settings of other routers: a scheduling profile of llm-d's picker, or options of Dynamo's KV
 * router. What a router cannot be told is listed, never left out silently.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { routingPolicies } from '../../sim/control/routing/routing.ts';
import { type PolicyBundle, policySlots } from '../evolve/bundle/policyBundle.ts';
import { PolicyError } from '../sandbox/program.ts';

/** Plugins of llm-d by our scorers: the same formula (docs/guide/policies.md). */
const llmDScorers: Readonly<Record<string, string>> = {
  'prefix-affinity': 'prefix-cache-scorer',
  'precise-prefix-cache': 'precise-prefix-cache-scorer',
  'queue-depth': 'queue-scorer',
  'kv-utilization': 'kv-cache-utilization-scorer',
  'running-requests': 'running-requests-size-scorer',
  'active-requests': 'active-request-scorer',
  'load-aware': 'load-aware-scorer',
  'session-affinity': 'session-affinity-scorer',
  'no-hit-lru': 'no-hit-lru-scorer',
  'lora-affinity': 'lora-affinity-scorer',
};

/** Pickers of llm-d by our templates that draw; every other weighted sum takes the highest score. */
const llmDPickers: Readonly<Record<string, string>> = { 'llm-d-weighted-random': 'weighted-random-picker' };

/** Options of Dynamo's frontend by parameters of `dynamo-kv`. */
const dynamoFlags: Readonly<Record<string, string>> = {
  overlapWeight: '--kv-overlap-score-weight',
  temperature: '--router-temperature',
};

/** Settings of another router, and what of the bundle they do not say. */
interface RouterWeights {
  readonly router: 'llm-d' | 'Dynamo';
  /** YAML for llm-d, command-line options for Dynamo. */
  readonly text: string;
  readonly notExpressed: readonly string[];
}

/**
 * The routing of a bundle for the router that can be told most of it.
 * @throws PolicyError contract for a bundle whose routing neither router can be told
 */
export function routerWeights(bundle: PolicyBundle): RouterWeights {
  checkInputs({ bundle }, { bundle: is.object() });
  const { routing } = bundle;
  const others = policySlots.filter((slot) => slot !== 'routing' && bundle[slot] !== undefined);
  const notExpressed = others.map((slot) => `${slot}: these routers have it in settings of their own`);
  if (routing === undefined) {
    throw notExpressible('the bundle has no routing. Give it one, such as routing/llm-d');
  }
  if (routing.type !== 'parameterized') {
    const what = routing.type === 'code' ? `a ${routing.language} program` : 'a decision tree';
    throw notExpressible(
      `the routing is ${what}, and these routers take weights alone. Run it in tierkv gateway, or search weights: tierkv evolve`,
    );
  }
  const { template } = routing;
  const { policy: _, ...all } = routingPolicies.resolve({ ...routing.parameters, policy: template });
  if (template === 'dynamo-kv') return dynamo(template, all, notExpressed);
  const { scorers, ties: __, ...rest } = all;
  if (typeof scorers !== 'object') {
    throw notExpressible(
      `the routing ${template} does not sum weighted scorers. Take weighted, llm-d or dynamo-kv, or run it in tierkv gateway`,
    );
  }
  const isDrawn =
    template.startsWith('llm-d-') && template !== 'llm-d-prefix-length' && template !== 'llm-d-pd';
  if (isDrawn && llmDPickers[template] === undefined) {
    notExpressed.push(`routing: how ${template} draws; the highest score is taken`);
  }
  if (template === 'evolved') notExpressed.push('routing: that evolved lets go of crowded instances');
  notExpressed.push(...changed(template, rest));
  const weights = Object.entries(scorers as Readonly<Record<string, number>>).filter(
    ([, weight]) => weight !== 0,
  );
  const known = weights.filter(([name]) => llmDScorers[name] !== undefined);
  for (const [name, weight] of weights) {
    if (llmDScorers[name] === undefined) notExpressed.push(`routing: the scorer ${name} (weight ${weight})`);
  }
  if (known.length === 0) {
    const names = weights.map(([name]) => name).join(', ');
    throw notExpressible(
      `llm-d has no scorer like ${names}. Take some of ${Object.keys(llmDScorers).join(', ')}`,
    );
  }
  return {
    router: 'llm-d',
    text: llmDProfile(known, llmDPickers[template] ?? 'max-score-picker'),
    notExpressed,
  };
}

function notExpressible(problem: string): PolicyError {
  return new PolicyError('contract', problem, { path: 'routing' });
}

/** Parameters that differ from what the template has by itself. */
function changed(template: string, values: Readonly<Record<string, unknown>>): string[] {
  const byDefault = routingPolicies.resolve({ policy: template });
  return Object.entries(values)
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(byDefault[name]))
    .map(([name, value]) => `routing: ${name}=${JSON.stringify(value)}`);
}

function llmDProfile(weights: readonly (readonly [string, number])[], picker: string): string {
  const plugins = [...weights.map(([name]) => llmDScorers[name]), picker];
  return [
    'apiVersion: inference.networking.x-k8s.io/v1alpha1',
    'kind: EndpointPickerConfig',
    'plugins:',
    ...plugins.map((type) => `- type: ${type}`),
    'schedulingProfiles:',
    '- name: default',
    '  plugins:',
    ...weights.flatMap(([name, weight]) => [`  - pluginRef: ${llmDScorers[name]}`, `    weight: ${weight}`]),
    `  - pluginRef: ${picker}`,
    '',
  ].join('\n');
}

function dynamo(
  template: string,
  values: Readonly<Record<string, unknown>>,
  notExpressed: readonly string[],
): RouterWeights {
  const told = Object.keys(dynamoFlags);
  const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !told.includes(name)));
  const text = ['--router-mode kv', ...told.map((name) => `${dynamoFlags[name]} ${values[name]}`)];
  return {
    router: 'Dynamo',
    text: `${text.join(' ')}\n`,
    notExpressed: [...notExpressed, ...changed(template, rest)],
  };
}
