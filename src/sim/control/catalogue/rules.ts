/** Whole-router rules by name, with their parameters. */

import { type PolicyWorld, PREFILL_TOKENS_PER_S } from '../policy.ts';
import type { NumberRule, ParameterRules, PolicyEntry, PolicyParameters } from '../registry.ts';
import { Picker, type RoutingPolicy, tieNames } from '../routing/routingPolicy.ts';
import {
  AibrixConductor,
  AibrixLeastLatency,
  AibrixPd,
  AibrixPrefixCache,
  AibrixThroughput,
  AibrixVtc,
} from './aibrix.ts';
import { LatencyHeadroom, PowerOfTwo, RandomInstance } from './chance.ts';
import { DynamoKv } from './dynamo.ts';
import { Preble } from './preble.ts';
import { KvAware, PrefixAware } from './productionStack.ts';
import { SglangCacheAware, SglangLmetric, SglangPrefixHash } from './sglang.ts';

const number = (byDefault: number, limits: Partial<NumberRule> = { min: 0 }): NumberRule => {
  return { kind: 'number', default: byDefault, ...limits };
};
const whole = (byDefault: number, min: number = 0): NumberRule => number(byDefault, { min, integer: true });
const positive = (byDefault: number): NumberRule => number(byDefault, { above: 0 });
const ties = { kind: 'choice', default: 'lowest', names: tieNames } as const;

const pickerOf = (p: PolicyParameters, world: PolicyWorld): Picker => Picker.of(p.text('ties'), world);

/**
 * Keys that a rule remembers of each instance: SGLang's 2^26 characters at 4 a token and 16 tokens a block.
 */
const memory: ParameterRules = { memoryBlocks: whole(2 ** 20, 1), ties };

function prefixCache(about: string, imbalance: number, deviations: number): PolicyEntry<RoutingPolicy> {
  return {
    about,
    parameters: { imbalance: whole(imbalance), deviations: number(deviations), ...memory },
    make: (p, world) =>
      new AibrixPrefixCache(
        p.number('imbalance'),
        p.number('deviations'),
        pickerOf(p, world),
        p.number('memoryBlocks'),
      ),
  };
}

function preble(kind: 'preble' | 'aibrix', about: string): PolicyEntry<RoutingPolicy> {
  return {
    about,
    parameters: {
      windowUs: positive(180_000_000),
      prefillUs: positive(20),
      tpotUs: number(7000),
      outputTokens: number(128),
      ...memory,
    },
    make: (p, world) => {
      const rules = {
        kind,
        windowUs: p.number('windowUs'),
        prefillUs: p.number('prefillUs'),
        tpotUs: p.number('tpotUs'),
        outputTokens: p.number('outputTokens'),
      };
      return new Preble(rules, world.blockTokens, pickerOf(p, world), p.number('memoryBlocks'));
    },
  };
}

export const ruleEntries: Readonly<Record<string, PolicyEntry<RoutingPolicy>>> = {
  random: {
    about: 'any instance, drawn from the stream of the simulation',
    parameters: {},
    make: (_, world) => new RandomInstance(world.stream('router')),
  },
  'power-of-two': {
    about: 'two are drawn, and the one with fewer in flight is taken',
    parameters: {},
    make: (_, world) => new PowerOfTwo(world.stream('router')),
  },
  'dynamo-kv': {
    about: 'Dynamo: the least blocks to prefill and under way, less what is cached; softmax at a temperature',
    parameters: {
      overlapWeight: number(1),
      prefillScale: number(1),
      creditDecay: number(0),
      hostWeight: number(0.75),
      diskWeight: number(0.25),
      activeWeight: number(0),
      temperature: number(0),
    },
    make: (p, world) => {
      const weights = {
        overlapWeight: p.number('overlapWeight'),
        prefillScale: p.number('prefillScale'),
        creditDecay: p.number('creditDecay'),
        hostWeight: p.number('hostWeight'),
        diskWeight: p.number('diskWeight'),
        activeWeight: p.number('activeWeight'),
        temperature: p.number('temperature'),
      };
      return new DynamoKv(weights, world.blockTokens, world.stream('router'));
    },
  },
  'sglang-cache-aware': {
    about: 'SGLang: the best match while loads are even, else the least loaded',
    parameters: {
      absolute: whole(64),
      relative: number(1.5, { min: 1 }),
      matchShare: number(0.3, { min: 0, max: 1 }),
      cold: { kind: 'choice', default: 'least-load', names: ['least-load', 'smallest-tree'] },
      ...memory,
    },
    make: (p, world) => {
      const cold = p.text('cold') === 'smallest-tree' ? 'smallest-tree' : 'least-load';
      const rules = {
        absolute: p.number('absolute'),
        relative: p.number('relative'),
        matchShare: p.number('matchShare'),
        cold,
      } as const;
      return new SglangCacheAware(rules, pickerOf(p, world), p.number('memoryBlocks'));
    },
  },
  'sglang-lmetric': {
    about: 'SGLang: the least uncached tokens x (in flight + 1)',
    parameters: { memoryBlocks: memory.memoryBlocks },
    make: (p, world) => new SglangLmetric(new Picker(null), p.number('memoryBlocks'), world.blockTokens),
  },
  'sglang-prefix-hash': {
    about: 'SGLang: the owner of the first tokens on a ring, while it is not overloaded',
    parameters: { prefixTokens: whole(256, 1), loadFactor: number(1.25, { min: 1 }), ties },
    make: (p, world) =>
      new SglangPrefixHash(
        pickerOf(p, world),
        Math.floor(p.number('prefixTokens') / world.blockTokens),
        p.number('loadFactor'),
      ),
  },
  'aibrix-prefix-cache': prefixCache('AIBrix: the longest match among those not overloaded', 8, 1),
  'aibrix-prefix-cache-readme': prefixCache('the same with the figures of its README', 16, 2),
  'aibrix-preble': preble('aibrix', 'AIBrix: where more than half of the prompt is cached, else least cost'),
  'aibrix-vtc-basic': {
    about: "AIBrix: tenants by their tokens over the instances, beside the instances' load",
    parameters: {
      fairness: number(1),
      utilization: number(1),
      promptWeight: number(1),
      outputWeight: number(2),
      maxLoad: positive(100),
      minTokens: positive(1000),
      jitter: number(0.1),
      windowUs: positive(300_000_000),
      ties,
    },
    make: (p, world) => {
      const weights = {
        fairness: p.number('fairness'),
        utilization: p.number('utilization'),
        promptWeight: p.number('promptWeight'),
        outputWeight: p.number('outputWeight'),
        maxLoad: p.number('maxLoad'),
        minTokens: p.number('minTokens'),
        jitter: p.number('jitter'),
      };
      return new AibrixVtc(weights, p.number('windowUs'), pickerOf(p, world), world.stream('router'));
    },
  },
  'aibrix-pd': {
    about: 'AIBrix: match and load to prefill, load, throughput and free HBM to decode',
    parameters: { windowUs: positive(60_000_000), ...memory },
    make: (p, world) => new AibrixPd(p.number('windowUs'), pickerOf(p, world), p.number('memoryBlocks')),
  },
  'aibrix-pd-conductor': {
    about: 'AIBrix: the least predicted time to the first token to prefill, between tokens to decode',
    parameters: {
      windowUs: positive(60_000_000),
      hitUs: number(5),
      hitFixedUs: number(1000),
      missUs: number(1),
      missFixedUs: number(5000),
      ...memory,
    },
    make: (p, world) => {
      const times = {
        hitUs: p.number('hitUs'),
        hitFixedUs: p.number('hitFixedUs'),
        missUs: p.number('missUs'),
        missFixedUs: p.number('missFixedUs'),
      };
      return new AibrixConductor(
        times,
        p.number('windowUs'),
        world.blockTokens,
        pickerOf(p, world),
        p.number('memoryBlocks'),
      );
    },
  },
  'aibrix-throughput': {
    about: 'AIBrix: the least prompt and output tokens of its ended requests, prompts twice',
    parameters: { ties },
    make: (p, world) => new AibrixThroughput(pickerOf(p, world)),
  },
  'aibrix-least-latency': {
    about: 'AIBrix: the least time of its ended requests, scaled to the mean lengths',
    parameters: { ties },
    make: (p, world) => new AibrixLeastLatency(pickerOf(p, world)),
  },
  'preble-e2': preble('preble', 'Preble: exploit where most of the prompt is cached, else explore by cost'),
  'prodstack-kvaware': {
    about: "vLLM's production stack: the longest match, the session's owner, or the least rate",
    parameters: { threshold: whole(2000), windowUs: positive(60_000_000), ties },
    make: (p, world) =>
      new KvAware(p.number('threshold'), p.number('windowUs'), world.blockTokens, pickerOf(p, world)),
  },
  'prodstack-prefixaware': {
    about: "vLLM's production stack: one of those to which most of the prompt went before, drawn",
    parameters: { memoryBlocks: memory.memoryBlocks },
    make: (p, world) => new PrefixAware(world.stream('router'), p.number('memoryBlocks')),
  },
  'llm-d-latency': {
    about: 'llm-d: by head room between targets and predicted times',
    parameters: {
      ttftUs: number(0),
      tpotUs: number(50_000),
      ttftWeight: number(0.8, { min: 0, max: 1 }),
      strategy: { kind: 'choice', default: 'least', names: ['least', 'most'] },
      tokensPerS: positive(PREFILL_TOKENS_PER_S),
      ...memory,
    },
    make: (p, world) => {
      const rules = {
        ttftUs: p.number('ttftUs'),
        tpotUs: p.number('tpotUs'),
        ttftWeight: p.number('ttftWeight'),
        strategy: p.text('strategy') === 'most' ? 'most' : 'least',
        tokensPerS: p.number('tokensPerS'),
      } as const;
      return new LatencyHeadroom(rules, world.blockTokens, pickerOf(p, world), p.number('memoryBlocks'));
    },
  },
};
