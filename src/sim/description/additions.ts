/**
 * Additions to upstream's keys that a client of a spec may have (misbehaviour, a choice among prefixes, correlations,
 * archetypes, sessions that walk from state to state). They are read strictly, and carried over to upstream's keys
 * where those follow from them.
 */

import type { LengthSpec } from '../random/samplers.ts';
import { maxRequestTokens } from '../workload/request.ts';
import { readLength } from './distribution.ts';
import type { SpecNode } from './fields.ts';
import {
  type AdditionsSpec,
  type BehaviorSpec,
  type CancellationSpec,
  type CorrelationSpec,
  contextGrowths,
  END_STATE,
  type MultiTurnSpec,
  type PrefixChoiceSpec,
  type ReasoningSpec,
  type WalkSpec,
  type WalkState,
} from './workloadSpec.ts';

interface ReadAdditions {
  readonly additions: AdditionsSpec;
  /** Prompt length of the first request of a session, or of an archetype; absent: the client's own. */
  readonly inputLength: LengthSpec | undefined;
  readonly outputLength: LengthSpec | undefined;
  /** Makes the client's requests the first ones of sessions. */
  readonly reasoning: ReasoningSpec | undefined;
}

const KEYS = ['session', 'behavior', 'prefixes', 'correlation', 'archetype'] as const;

/** @param concurrency users in closed loop; they have none of this */
export function readAdditions(
  node: SpecNode,
  readFile: (path: string) => string,
  concurrency: number,
): ReadAdditions {
  const given = KEYS.filter((key) => node.has(key));
  const none = { additions: {}, inputLength: undefined, outputLength: undefined, reasoning: undefined };
  if (given.length === 0) return none;
  if (concurrency > 0) throw node.error(given[0], 'excludes concurrency', 'Keep one of them');
  const tenantId = node.text('tenant_id');
  const archetype = readArchetype(node, tenantId);
  const input = readLength(node, 'input_distribution', readFile) ?? archetype?.inputLength;
  const output = readLength(node, 'output_distribution', readFile);
  const walk = readSession(node, { input, output }, readFile);
  const behavior = readBehavior(node) ?? archetype?.behavior;
  const correlations = readCorrelation(node, tenantId);
  const ownPrefixes = readPrefixes(node);
  if (ownPrefixes !== undefined && correlations.prefixes !== undefined) {
    throw node.error('prefixes', 'exclude correlation.intra_tenant_prefix', 'Keep one of them');
  }
  const prefixes = ownPrefixes ?? correlations.prefixes ?? archetype?.prefixes;
  if (prefixes !== undefined && node.text('prefix_group') !== '') {
    throw node.error('prefix_group', 'excludes a choice among prefixes', 'Keep one of them');
  }
  const { correlation } = correlations;
  const turns = archetype?.sessionLength ?? 1;
  if (walk !== undefined) requireAlone(node);
  const multiTurn: MultiTurnSpec | undefined =
    walk !== undefined
      ? { maxRounds: 1, thinkTimeUs: 0, accumulate: walk.growth !== 'none', singleSession: false }
      : turns > 1 && !node.has('reasoning')
        ? { maxRounds: turns, thinkTimeUs: 10_000_000, accumulate: true, singleSession: false }
        : undefined;
  return {
    additions: {
      ...(walk === undefined ? {} : { walk }),
      ...(behavior === undefined ? {} : { behavior }),
      ...(prefixes === undefined ? {} : { prefixes }),
      ...(correlation === undefined ? {} : { correlation }),
    },
    inputLength: walk?.states[0].inputLength ?? archetype?.inputLength,
    outputLength: walk?.states[0].outputLength,
    reasoning: multiTurn === undefined ? undefined : { multiTurn },
  };
}

/** Rounds of a session are the session's; they come when the ones before have ended. */
function requireAlone(node: SpecNode): void {
  if (node.has('reasoning')) throw node.error('reasoning', 'excludes session', 'Keep one of them');
  if (node.has('multimodal')) throw node.error('multimodal', 'excludes session', 'Keep one of them');
  if (node.flag('closed_loop') === false) {
    throw node.error('closed_loop', 'is false', 'Sessions go on when a request has ended: leave it out');
  }
}

/** Users who give requests up: `share` of them, `delay_ms` after arrival. Goes with any kind of client. */
export function readCancellation(
  node: SpecNode,
  readFile: (path: string) => string,
): CancellationSpec | undefined {
  const section = node.section('cancellation');
  if (section === undefined) return undefined;
  if (!section.has('share')) throw section.error('share', 'is missing', 'Give the share that users give up');
  const cancellation = {
    share: section.number('share', { min: 0, max: 1 }, 0),
    delayMs: required(section, 'delay_ms', readLength(section, 'delay_ms', readFile)),
  };
  section.close();
  return cancellation;
}

// Reads `behavior`, `prefixes`, `correlation` and `archetype`: how tenants differ from the normal one. An
// archetype is shorthand: it stands for keys that are not given.

const tokens = { min: 1, max: maxRequestTokens };
const time = { min: 1, max: 1e12 };
const count = { min: 1, max: 1_000_000 };
const share = { min: 0, max: 1 };

const behaviorKinds = ['normal', 'bursty', 'abusive', 'adversarial'] as const;

function readBurst(node: SpecNode | undefined): BehaviorSpec['burst'] {
  if (node === undefined) return undefined;
  const burst = {
    probability: node.number('probability', share, 0.1),
    size: node.integer('size', count, 10),
    intervalUs: node.integer('interval_us', time, 10_000),
  };
  node.close();
  return burst;
}

/** Defaults of each kind's parts. */
const usual: Readonly<Record<(typeof behaviorKinds)[number], BehaviorSpec>> = {
  normal: {},
  bursty: { burst: { probability: 0.1, size: 10, intervalUs: 10_000 } },
  abusive: {
    burst: { probability: 0.2, size: 50, intervalUs: 1000 },
    oversized: { share: 0.25, tokens: 16_000 },
  },
  adversarial: {
    synchronised: { everyUs: 10_000_000, size: 32 },
    oversized: { share: 1, tokens: 32_000 },
  },
};

function readBehavior(node: SpecNode): BehaviorSpec | undefined {
  const section = node.section('behavior');
  if (section === undefined) return undefined;
  const kind = section.choice('type', behaviorKinds, 'normal');
  const burst = readBurst(section.section('burst')) ?? readBurst(section.section('rapid_fire'));
  const oversizedNode = section.section('oversized');
  const oversized =
    oversizedNode === undefined
      ? undefined
      : {
          share: oversizedNode.number('share', share, 1),
          tokens: oversizedNode.integer('tokens', tokens, 16_000),
        };
  oversizedNode?.close();
  // every prompt has this many tokens of its own: the cache fills with blocks that never come back
  const exhausted = section.has('exhaust_cache_tokens')
    ? { share: 1, tokens: section.integer('exhaust_cache_tokens', tokens, 1) }
    : undefined;
  if (exhausted !== undefined && oversized !== undefined) {
    throw section.error('exhaust_cache_tokens', 'excludes oversized', 'Keep one of them');
  }
  const syncNode = section.section('synchronised');
  const synchronised =
    syncNode === undefined
      ? undefined
      : {
          everyUs: syncNode.integer('every_us', time, 10_000_000),
          size: syncNode.integer('size', count, 32),
        };
  syncNode?.close();
  section.close();
  const oversizes = oversized ?? exhausted;
  const behavior: BehaviorSpec = {
    ...usual[kind],
    ...(burst === undefined ? {} : { burst }),
    ...(oversizes === undefined ? {} : { oversized: oversizes }),
    ...(synchronised === undefined ? {} : { synchronised }),
  };
  if (behavior.burst !== undefined && behavior.synchronised !== undefined) {
    throw node.error('behavior', 'has bursts and synchronised arrivals', 'Keep one of them');
  }
  return Object.keys(behavior).length === 0 ? undefined : behavior;
}

function readPrefixes(node: SpecNode): PrefixChoiceSpec | undefined {
  const section = node.section('prefixes');
  if (section === undefined) return undefined;
  const groups = section.list('groups').map((group) => {
    const id = group.text('id');
    if (id === '') throw group.error('id', 'is missing', 'Name the group');
    const found = {
      id,
      tokens: group.integer('length', tokens, 50),
      popularity: group.number('popularity', { above: 0, max: 1e9 }, 1),
    };
    group.close();
    return found;
  });
  if (groups.length === 0) throw section.error('groups', 'is empty', 'Give a group with id and length');
  const choice = { reuseProbability: section.number('reuse_probability', share, 1), groups };
  section.close();
  return choice;
}

interface Correlations {
  readonly correlation: CorrelationSpec | undefined;
  /** The prefix that requests of a tenant share, from `intra_tenant_prefix`. */
  readonly prefixes: PrefixChoiceSpec | undefined;
}

function readCorrelation(node: SpecNode, tenantId: string): Correlations {
  const section = node.section('correlation');
  if (section === undefined) return { correlation: undefined, prefixes: undefined };
  const burstSize = section.number('burst_size', { min: -1, max: 1 }, 0);
  const reuseProbability = section.number('intra_tenant_prefix', share, 0);
  const length = section.integer('prefix_length', tokens, 256);
  section.close();
  const group = { id: `tenant/${tenantId}`, tokens: length, popularity: 1 };
  return {
    correlation: burstSize === 0 ? undefined : { burstSize },
    prefixes: reuseProbability === 0 ? undefined : { reuseProbability, groups: [group] },
  };
}

/** Medians of prompts in tokens, and their logarithms; the deviation of the logarithm is 0.6. */
const prompts = {
  small: { median: 200, mu: 5.298317 },
  medium: { median: 1000, mu: 6.907755 },
  large: { median: 4000, mu: 8.29405 },
  elephant: { median: 32_000, mu: 10.373491 },
} as const;
const sizes = ['small', 'medium', 'large', 'elephant'] as const;

/** The settings that an archetype stands for. */
interface Archetype extends AdditionsSpec {
  readonly inputLength: LengthSpec;
  /** Rounds of a session; 1 for none. */
  readonly sessionLength: number;
}

function readArchetype(node: SpecNode, tenantId: string): Archetype | undefined {
  const section = node.section('archetype');
  if (section === undefined) return undefined;
  const size = section.choice('typical_prompt_size', sizes, 'medium');
  const affinity = section.number('prefix_reuse_affinity', share, 0);
  const propensity = section.number('burst_propensity', share, 0);
  const sessionLength = section.integer('session_length', { min: 1, max: 10_000 }, 1);
  section.close();
  const { median, mu } = prompts[size];
  const group = { id: `tenant/${tenantId}`, tokens: Math.ceil(median / 2), popularity: 1 };
  return {
    inputLength: {
      type: 'lognormal',
      mu,
      sigma: 0.6,
      min: 1,
      max: 8 * median,
    },
    sessionLength,
    ...(affinity === 0 ? {} : { prefixes: { reuseProbability: affinity, groups: [group] } }),
    ...(propensity === 0
      ? {}
      : { behavior: { burst: { probability: propensity, size: 10, intervalUs: 10_000 } } }),
  };
}

// Reads `session`: agents that call tools, chains of reasoning, and any Markov chain of states. The first two
// are chains too.

const sessionKinds = ['agentic', 'reasoning_chain', 'markov'] as const;
const ROUNDS_MAX = 10_000;
const STATES_MAX = 1000;
const ONE_TOKEN: LengthSpec = { type: 'constant', value: 1 };

/** Lengths of the client, which states take where they have none of their own. */
interface ClientLengths {
  readonly input: LengthSpec | undefined;
  readonly output: LengthSpec | undefined;
}

type ReadLength = (node: SpecNode, key: string) => LengthSpec | undefined;
type Chain = Pick<WalkSpec, 'states' | 'maxRounds'> & Pick<Partial<WalkSpec>, 'rounds'>;

/** @returns undefined without the key */
function readSession(
  node: SpecNode,
  lengths: ClientLengths,
  readFile: (path: string) => string,
): WalkSpec | undefined {
  const section = node.section('session');
  if (section === undefined) return undefined;
  const kinds = sessionKinds.filter((kind) => section.has(kind));
  if (kinds.length !== 1) {
    const problem = `names ${kinds.length} of ${sessionKinds.join(', ')}`;
    throw section.error('', problem, 'Name one of them');
  }
  const inner = section.section(kinds[0]);
  if (inner === undefined) throw section.error(kinds[0], 'is empty', 'Write its keys under it');
  const read: ReadLength = (at, key) => readLength(at, key, readFile);
  const makers = { agentic: agenticChain, reasoning_chain: reasoningChain, markov: markovChain };
  const chain = makers[kinds[0]](inner, lengths, read);
  inner.close();
  const growth = section.choice('context_growth', contextGrowths, 'linear');
  const contextLimit = section.integer('context_limit', { min: 1, max: maxRequestTokens }, maxRequestTokens);
  if (growth === 'bounded' && !section.has('context_limit')) {
    throw section.error(
      'context_growth',
      'is bounded without a context_limit',
      'Set context_limit in tokens',
    );
  }
  const walk: WalkSpec = {
    ...chain,
    maxRounds: section.integer('max_rounds', { min: 1, max: ROUNDS_MAX }, chain.maxRounds),
    growth,
    contextLimit,
    promptGrowthRate: section.number('prompt_growth_rate', { min: -0.9, max: 1 }, 0),
    decodeVariation: section.number('decode_variation', { min: 0, max: 1 }, 0),
  };
  section.close();
  return walk;
}

function required(node: SpecNode, key: string, length: LengthSpec | undefined): LengthSpec {
  if (length !== undefined) return length;
  throw node.error(key, 'is missing', 'Give it a type and params');
}

/** A question, and tool calls with their results as long as the agent goes on. */
function agenticChain(node: SpecNode, { input, output }: ClientLengths, read: ReadLength): Chain {
  const probability = node.number('tool_call_probability', { min: 0, max: 1 }, 0.5);
  const calls = node.integer('max_tool_calls', { min: 1, max: ROUNDS_MAX - 1 }, 20);
  const result = required(node, 'tool_result_distribution', read(node, 'tool_result_distribution'));
  const answer = read(node, 'call_distribution') ?? required(node, 'call_distribution', output);
  const latency = read(node, 'tool_latency_ms');
  const next = { call: probability, [END_STATE]: 1 - probability };
  return {
    maxRounds: 1 + calls,
    states: [
      {
        name: 'ask',
        inputLength: required(node, 'input_distribution', input),
        outputLength: answer,
        next,
      },
      {
        name: 'call',
        inputLength: result,
        outputLength: answer,
        ...(latency === undefined ? {} : { pauseMs: latency }),
        next,
      },
    ],
  };
}

/** Steps that each go on from all before them, with one token to begin with. */
function reasoningChain(node: SpecNode, { input }: ClientLengths, read: ReadLength): Chain {
  const rounds = required(node, 'chain_length', read(node, 'chain_length'));
  const tokens = required(node, 'tokens_per_step', read(node, 'tokens_per_step'));
  return {
    maxRounds: ROUNDS_MAX,
    rounds,
    states: [
      {
        name: 'ask',
        inputLength: required(node, 'input_distribution', input),
        outputLength: tokens,
        next: { step: 1 },
      },
      { name: 'step', inputLength: ONE_TOKEN, outputLength: tokens, next: { step: 1 } },
    ],
  };
}

function markovChain(node: SpecNode, { input, output }: ClientLengths, read: ReadLength): Chain {
  const nodes = node.list('states');
  if (nodes.length === 0 || nodes.length > STATES_MAX) {
    throw node.error('states', `has ${nodes.length} states`, `Give 1 to ${STATES_MAX}; the first one begins`);
  }
  const names = nodes.map((state) => state.text('name'));
  const rounds = read(node, 'rounds');
  const states = nodes.map((state, i): WalkState => {
    const name = names[i];
    if (name === '' || name === END_STATE || names.indexOf(name) !== i) {
      throw state.error('name', `is "${name}"`, `Give each state its own name, other than ${END_STATE}`);
    }
    const pauseMs = read(state, 'pause_ms');
    const found: WalkState = {
      name,
      inputLength: required(state, 'input_distribution', read(state, 'input_distribution') ?? input),
      outputLength: required(state, 'output_distribution', read(state, 'output_distribution') ?? output),
      ...(pauseMs === undefined ? {} : { pauseMs }),
      next: nextStates(state, names),
    };
    state.close();
    return found;
  });
  return { states, maxRounds: 100, ...(rounds === undefined ? {} : { rounds }) };
}

function nextStates(state: SpecNode, names: readonly string[]): Record<string, number> {
  const section = state.section('next');
  if (section === undefined) return { [END_STATE]: 1 };
  const known = [...names, END_STATE];
  for (const name of known) section.has(name);
  const next = Object.fromEntries(
    section.keys().flatMap((name) => {
      return known.includes(name) ? [[name, section.number(name, { min: 0, max: 1e9 }, 0)]] : [];
    }),
  );
  section.close();
  const mass = Object.values(next).reduce((sum, weight) => sum + weight, 0);
  if (!(mass > 0))
    throw state.error('next', 'has no weight above 0', `Give a state, or ${END_STATE}, a weight`);
  return next;
}
