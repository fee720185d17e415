/**
 * Reads `session`: agents that call tools, chains of reasoning, and any Markov chain of states. The first two
 * are chains too.
 */

import type { LengthSpec } from '../../../random/index.ts';
import { maxRequestTokens } from '../../request.ts';
import { readLength } from '../distribution.ts';
import type { SpecNode } from '../reader.ts';
import { contextGrowths, END_STATE, type WalkSpec, type WalkState } from './types.ts';

const KINDS = ['agentic', 'reasoning_chain', 'markov'] as const;
const ROUNDS_MAX = 10_000;
const STATES_MAX = 1000;
const ONE_TOKEN: LengthSpec = { type: 'constant', value: 1 };

/** Lengths of the client, which states take where they have none of their own. */
export interface ClientLengths {
  readonly input: LengthSpec | undefined;
  readonly output: LengthSpec | undefined;
}

type ReadLength = (node: SpecNode, key: string) => LengthSpec | undefined;
type Chain = Pick<WalkSpec, 'states' | 'maxRounds'> & Pick<Partial<WalkSpec>, 'rounds'>;

/** @returns undefined without the key */
export function readSession(
  node: SpecNode,
  lengths: ClientLengths,
  readFile: (path: string) => string,
): WalkSpec | undefined {
  const section = node.section('session');
  if (section === undefined) return undefined;
  const kinds = KINDS.filter((kind) => section.has(kind));
  if (kinds.length !== 1) {
    const problem = `names ${kinds.length} of ${KINDS.join(', ')}`;
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
