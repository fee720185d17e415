/**
 * Figures of a workload: arrivals, lengths, tenants, and the hits of an unlimited prefix cache. One pass over a stream;
 * arrival times and lengths are kept as numbers (16 bytes a request), so that percentiles are exact.
 */

import { namedError, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { fnv1a64 } from '../random/goRand.ts';
import { NumberColumn, type PromptIdentity, type TokenSpan, type WorkloadRequest } from './request.ts';

/** Distribution of a column of numbers. */
export interface Distribution {
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

export interface GroupSummary {
  readonly name: string;
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

export interface WorkloadSummary {
  readonly requests: number;
  readonly firstArrivalUs: number;
  readonly lastArrivalUs: number;
  /** Over the time from the first to the last arrival. */
  readonly requestsPerS: number;
  /** Coefficient of variation of the gaps between arrivals. */
  readonly gapCv: number;
  readonly input: Distribution;
  readonly output: Distribution;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly sessions: number;
  /** Prompt tokens that an unlimited cache would have seen before, by the order of arrival. */
  readonly reusedTokens: number;
  /** Blocks looked up and found by the same cache, for traces that name blocks. */
  readonly blocks: number;
  readonly reusedBlocks: number;
  readonly tenants: readonly GroupSummary[];
  readonly classes: readonly GroupSummary[];
  readonly clients: readonly GroupSummary[];
}

interface MutableGroup {
  requests: number;
  inputTokens: number;
  outputTokens: number;
}

/** Most requests of a summary; each takes 24 bytes, and as much again to find percentiles. */
const maxRequests = 2 ** 24;
const MAX_GROUPS = 10_000;
const OTHERS = '(others)';

export class WorkloadSummarizer {
  readonly arrivalsUs: NumberColumn = new NumberColumn();
  readonly inputTokens: NumberColumn = new NumberColumn();
  readonly outputTokens: NumberColumn = new NumberColumn();
  #requests = 0;
  readonly #reuse = new ReuseCounter();
  readonly #sessions = new Set<string>();
  readonly #groups = {
    tenants: new Map<string, MutableGroup>(),
    classes: new Map<string, MutableGroup>(),
    clients: new Map<string, MutableGroup>(),
  };

  /**
   * @throws {TierKVError} TKV_CAPACITY for more requests, or more different parts of prompts, than can be
   * remembered.
   */
  add(request: WorkloadRequest): void {
    if (this.#requests++ === maxRequests) throw tooMuch(`${maxRequests} requests`);
    this.arrivalsUs.push(request.arrivalUs);
    this.inputTokens.push(request.inputTokens);
    this.outputTokens.push(request.outputTokens);
    if (request.sessionId !== '') this.#sessions.add(request.sessionId);
    if (this.#sessions.size > maxRemembered) throw tooMuch(`${maxRemembered} sessions`);
    this.#reuse.add(request);
    const { origin } = request;
    this.#count(this.#groups.tenants, origin.tenantId, request);
    this.#count(this.#groups.classes, origin.sloClass, request);
    this.#count(this.#groups.clients, origin.clientId, request);
  }

  #count(groups: Map<string, MutableGroup>, name: string, request: WorkloadRequest): void {
    let group = groups.get(name);
    if (group === undefined) {
      if (groups.size >= MAX_GROUPS && name !== OTHERS) {
        this.#count(groups, OTHERS, request);
        return;
      }
      groups.set(name, (group = { requests: 0, inputTokens: 0, outputTokens: 0 }));
    }
    group.requests++;
    group.inputTokens += request.inputTokens;
    group.outputTokens += request.outputTokens;
  }

  summary(): WorkloadSummary {
    const arrivals = this.arrivalsUs.view();
    const requests = arrivals.length;
    const first = requests === 0 ? 0 : arrivals[0];
    const last = requests === 0 ? 0 : arrivals[requests - 1];
    const sum = (column: NumberColumn): number => column.view().reduce((total, value) => total + value, 0);
    const list = (groups: ReadonlyMap<string, MutableGroup>): GroupSummary[] =>
      [...groups].map(([name, group]) => ({ name, ...group })).sort((a, b) => b.requests - a.requests);
    return {
      requests,
      firstArrivalUs: first,
      lastArrivalUs: last,
      requestsPerS: last > first ? ((requests - 1) * 1e6) / (last - first) : 0,
      gapCv: gapVariation(arrivals),
      input: distributionOf(this.inputTokens.view()),
      output: distributionOf(this.outputTokens.view()),
      inputTokens: sum(this.inputTokens),
      outputTokens: sum(this.outputTokens),
      sessions: this.#sessions.size,
      reusedTokens: this.#reuse.reusedTokens,
      blocks: this.#reuse.blocks,
      reusedBlocks: this.#reuse.reusedBlocks,
      tenants: list(this.#groups.tenants),
      classes: list(this.#groups.classes),
      clients: list(this.#groups.clients),
    };
  }
}

function gapVariation(arrivals: Float64Array): number {
  const gaps = arrivals.length - 1;
  if (gaps < 2) return 0;
  const mean = (arrivals[gaps] - arrivals[0]) / gaps;
  if (mean === 0) return 0;
  let squares = 0;
  for (let i = 0; i < gaps; i++) squares += (arrivals[i + 1] - arrivals[i] - mean) ** 2;
  return Math.sqrt(squares / (gaps - 1)) / mean;
}

/** Mean, percentiles (nearest rank) and maximum; zeros for no values. */
function distributionOf(values: Float64Array): Distribution {
  checkInputs({ values }, { values: is.bytes() });
  if (values.length === 0) return { mean: 0, p50: 0, p90: 0, p99: 0, max: 0 };
  const sorted = values.slice().sort();
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: sorted[sorted.length - 1] };
}

/** A number that names a workload: equal for equal requests in equal order. */
export class WorkloadDigest {
  #hash = 0xcbf29ce484222325n;

  add(request: WorkloadRequest): void {
    const { id, arrivalUs, inputTokens, outputTokens, sessionId, origin } = request;
    const line = [id, arrivalUs, inputTokens, outputTokens, sessionId, origin.clientId].join(',');
    this.#hash = BigInt.asUintN(64, (this.#hash * 0x100000001b3n) ^ fnv1a64(line));
  }

  toString(): string {
    return this.#hash.toString(16).padStart(16, '0');
  }
}

// Hits of an unlimited prefix cache: blocks of traces that name them, token lists in blocks of 16, and the spans that
// drawn prompts share. Blocks and spans are remembered up to a limit.

/** Most sessions, blocks and spans of prompts that are told apart. */
const maxRemembered: number = 2 ** 22;

function tooMuch(what: string): TierKVError {
  return namedError(
    'TKV_CAPACITY',
    {},
    (name) =>
      `the workload has more than ${what}, the most that is summarized. Look at a part of it ` +
      `(${name('workload.requests')}, ${name('horizonUs')})`,
  );
}

const LIST_BLOCK_TOKENS = 16;

/** Counts what an unlimited prefix cache would find. */
class ReuseCounter {
  reusedTokens: number = 0;
  blocks: number = 0;
  reusedBlocks: number = 0;
  readonly #blocksSeen = new Map<string, Set<number>>();
  #remembered = 0;
  readonly #chains = new Set<number>();
  readonly #spans = new Set<string>();

  add(request: WorkloadRequest): void {
    const { prompt } = request;
    if (prompt.kind === 'blocks') this.#addBlocks(prompt, request.inputTokens);
    else if (prompt.kind === 'tokens') this.#addTokens(prompt.tokens);
    else if (prompt.kind === 'drawn') this.#addSpans(request, prompt.spans);
    if (this.#remembered > maxRemembered)
      throw tooMuch(`${maxRemembered} different blocks or parts of prompts`);
  }

  #addBlocks(prompt: PromptIdentity & { kind: 'blocks' }, inputTokens: number): void {
    let seen = this.#blocksSeen.get(prompt.namespace);
    if (seen === undefined) this.#blocksSeen.set(prompt.namespace, (seen = new Set()));
    const before = seen.size;
    let leading = 0;
    let broken = false;
    for (let i = 0; i < prompt.runs.length; i += 2) {
      for (let id = prompt.runs[i], end = id + prompt.runs[i + 1]; id < end; id++) {
        this.blocks++;
        if (!broken && seen.has(id)) leading++;
        else {
          broken = true;
          seen.add(id);
        }
      }
    }
    this.#remembered += seen.size - before;
    this.reusedBlocks += leading;
    this.reusedTokens += Math.min(leading * prompt.blockTokens, inputTokens);
  }

  /** Token lists in blocks of 16, each identified by a hash of everything up to its end. */
  #addTokens(tokens: Int32Array): void {
    const before = this.#chains.size;
    let low = 0x811c9dc5;
    let high = 0x01000193;
    let broken = false;
    for (let at = 0; at + LIST_BLOCK_TOKENS <= tokens.length; at += LIST_BLOCK_TOKENS) {
      for (let i = at; i < at + LIST_BLOCK_TOKENS; i++) {
        low = Math.imul(low ^ tokens[i], 0x01000193);
        high = Math.imul(high + tokens[i], 0x85ebca6b) ^ (high >>> 15);
      }
      const key = (high >>> 11) * 2 ** 32 + (low >>> 0);
      this.blocks++;
      if (!broken && this.#chains.has(key)) {
        this.reusedBlocks++;
        this.reusedTokens += LIST_BLOCK_TOKENS;
      } else {
        broken = true;
        this.#chains.add(key);
      }
    }
    this.#remembered += this.#chains.size - before;
  }

  /** Drawn prompts share whole spans: prefixes of groups, and the history of a session. */
  #addSpans(request: WorkloadRequest, spans: (PromptIdentity & { kind: 'drawn' })['spans']): void {
    const before = this.#spans.size;
    this.#lookUp(request, spans);
    this.#remembered += this.#spans.size - before;
  }

  #lookUp(request: WorkloadRequest, spans: readonly TokenSpan[]): void {
    const shared = request.sessionId === '' ? spans.length - 1 : spans.length;
    let broken = false;
    for (let i = 0; i < shared; i++) {
      const key = `${spans[i].seed}/${spans[i].position}/${spans[i].tokens}`;
      if (!broken && this.#spans.has(key)) this.reusedTokens += spans[i].tokens;
      else {
        broken = true;
        this.#spans.add(key);
      }
    }
    if (request.sessionId === '' || request.output.kind !== 'drawn') return;
    // a follow-up repeats the output too, whole or without its last token
    for (const span of request.output.spans) {
      this.#spans.add(`${span.seed}/${span.position}/${span.tokens}`);
      this.#spans.add(`${span.seed}/${span.position}/${span.tokens - 1}`);
    }
  }
}
