/**
 * The public traces as chains of numbered blocks: equal number, equal whole prefix. Numbers are dense, so
 * tables over all blocks of a trace are plain arrays. A request's blocks are kept as runs of consecutive
 * numbers.
 *
 *     runs of one request:   first, count,   first, count, ...
 */

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { WorkloadRequest } from '../../src/sim/workload/request.ts';
import {
  mooncakeRequests,
  textTraceRequests,
  tokenIdRequests,
  wekaRequests,
} from '../../src/sim/workload/trace/index.ts';

export interface PrefixTrace {
  readonly name: string;
  readonly blockTokens: number;
  readonly runs: readonly Int32Array[];
  readonly arrivalUs: Float64Array;
  /** Blocks of each request. */
  readonly lengths: Int32Array;
  /** Blocks of all requests together. */
  readonly lookups: number;
  /** Different blocks: all numbers are below. */
  readonly blocks: number;
  /** Capacities in blocks that the table shows. */
  readonly capacities: readonly number[];
}

export const traceNames = ['conversation', 'agent', 'miniswe', 'miniswe5s', 'sharegpt'] as const;
export type TraceName = (typeof traceNames)[number];

/** Bytes of text that stand for one token where a trace has text only. */
const BYTES_PER_TOKEN = 4;

/** @returns undefined where the directory does not have the trace */
export function loadTrace(directory: string, name: TraceName): PrefixTrace | undefined {
  const path = join(directory, files[name]);
  return existsSync(path) ? readers[name](path) : undefined;
}

const files: Readonly<Record<TraceName, string>> = {
  conversation: 'mooncake-fast25/conversation_trace.jsonl.gz',
  agent: 'weka-kv-cache-tester/dev/requests.jsonl.gz',
  miniswe: 'lmcache-agent-trace/miniswe.tar.gz',
  miniswe5s: 'lmcache-agent-trace/miniswe.tar.gz',
  sharegpt: 'llmservingsim-vllm/requests/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz',
};

const readers: Readonly<Record<TraceName, (path: string) => PrefixTrace>> = {
  conversation: (path) => {
    const capacities = [500, 1_000, 2_000, 3_000, 5_000, 7_000, 10_000, 20_000, 30_000, 50_000, 100_000];
    return numbered('conversation', 512, capacities, mooncakeRequests(lines(path), path));
  },
  agent: (path) => {
    const capacities = [1_000, 3_000, 5_000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 300_000];
    return numbered('agent', 64, capacities, wekaRequests(lines(path), path));
  },
  miniswe: (path) => chained('miniswe', 64, BYTES_PER_TOKEN, minisweCapacities, textRequests(path)),
  /**
   * The same sessions, which follow each other in the original, each started five seconds after the one
   * before.
   */
  miniswe5s: (path) => {
    const requests = sessionsApart(textRequests(path), 5e6);
    return chained('miniswe5s', 64, BYTES_PER_TOKEN, minisweCapacities, requests);
  },
  sharegpt: (path) => {
    const capacities = [50, 100, 200, 400, 800, 1_200, 1_600, 2_400, 4_800, 9_600];
    return chained('sharegpt', 16, 1, capacities, tokenIdRequests(lines(path), path));
  },
};

const minisweCapacities = [50, 60, 70, 85, 100, 200, 400, 800, 1_500, 3_000];
const tarOptions = { maxBuffer: 2 ** 28 } as const;

function textRequests(path: string): WorkloadRequest[] {
  const names = execFileSync('tar', ['tzf', path], { encoding: 'utf8' }).split('\n');
  const texts = names
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .map((file) => ({ file, lines: textOf(execFileSync('tar', ['xzOf', path, file], tarOptions)) }));
  return [...textTraceRequests(texts)];
}

/**
 * Session k starts k gaps after the first one, in the order in which they started; requests in order of their
 * new times.
 */
function sessionsApart(requests: readonly WorkloadRequest[], gapUs: number): WorkloadRequest[] {
  const starts = new Map<string, number>();
  const moved = requests.map((request) => {
    const { sessionId, arrivalUs } = request;
    const startUs = starts.get(sessionId) ?? arrivalUs;
    starts.set(sessionId, startUs);
    const k = [...starts.keys()].indexOf(sessionId);
    return { ...request, arrivalUs: arrivalUs - startUs + k * gapUs };
  });
  return moved.sort((a, b) => a.arrivalUs - b.arrivalUs);
}

function lines(path: string): string[] {
  return textOf(gunzipSync(readFileSync(path)));
}

function textOf(bytes: Buffer): string[] {
  return bytes.toString('utf8').split('\n');
}

/** Requests that name their blocks by chained ids within a namespace. */
function numbered(
  name: string,
  blockTokens: number,
  capacities: readonly number[],
  requests: Iterable<WorkloadRequest>,
): PrefixTrace {
  const all: { namespace: string; runs: Int32Array; arrivalUs: number }[] = [];
  const sizes = new Map<string, number>();
  for (const { prompt, arrivalUs } of requests) {
    if (prompt.kind !== 'blocks') throw new Error(`${name}: a request without block ids`);
    const { namespace, runs } = prompt;
    let size = sizes.get(namespace) ?? 0;
    for (let at = 0; at < runs.length; at += 2) size = Math.max(size, runs[at] + runs[at + 1]);
    sizes.set(namespace, size);
    all.push({ namespace, runs, arrivalUs });
  }
  const bases = new Map<string, number>();
  let next = 0;
  for (const [namespace, size] of sizes) {
    bases.set(namespace, next);
    next += size;
  }
  const based = all.map(({ namespace, runs }) =>
    runs.map((value, at) => (at % 2 === 0 ? value + (bases.get(namespace) ?? 0) : value)),
  );
  const arrivals = Float64Array.from(all, ({ arrivalUs }) => arrivalUs);
  return finished(name, blockTokens, capacities, based, arrivals, next);
}

/** Requests that have tokens: every full block of a prompt is numbered by its parent and its tokens. */
function chained(
  name: string,
  blockTokens: number,
  unitsPerToken: number,
  capacities: readonly number[],
  requests: Iterable<WorkloadRequest>,
): PrefixTrace {
  const known = new Map<string, number>();
  const runs: Int32Array[] = [];
  const arrivals: number[] = [];
  const units = blockTokens * unitsPerToken;
  for (const { prompt, arrivalUs } of requests) {
    if (prompt.kind !== 'tokens') throw new Error(`${name}: a request without tokens`);
    const { tokens } = prompt;
    const own: number[] = [];
    let parent = -1;
    for (let at = 0; at + units <= tokens.length; at += units) {
      const key = `${parent}:${tokens.subarray(at, at + units).join()}`;
      const number = known.get(key) ?? known.size;
      known.set(key, number);
      if (number === parent + 1 && own.length > 0) own[own.length - 1]++;
      else own.push(number, 1);
      parent = number;
    }
    runs.push(Int32Array.from(own));
    arrivals.push(arrivalUs);
  }
  return finished(name, blockTokens, capacities, runs, Float64Array.from(arrivals), known.size);
}

function finished(
  name: string,
  blockTokens: number,
  capacities: readonly number[],
  runs: readonly Int32Array[],
  arrivalUs: Float64Array,
  blocks: number,
): PrefixTrace {
  const lengths = Int32Array.from(runs, (own) => {
    let length = 0;
    for (let at = 1; at < own.length; at += 2) length += own[at];
    return length;
  });
  const lookups = lengths.reduce((sum, length) => sum + length, 0);
  return { name, blockTokens, runs, arrivalUs, lengths, lookups, blocks, capacities };
}

/** Writes the request's blocks to `out`, the first one first. @returns how many */
export function expand(runs: Int32Array, out: Int32Array): number {
  let count = 0;
  for (let at = 0; at < runs.length; at += 2) {
    for (let i = 0; i < runs[at + 1]; i++) out[count++] = runs[at] + i;
  }
  return count;
}
