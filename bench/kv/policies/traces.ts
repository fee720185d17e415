/** The public traces as chains of numbered blocks, each with the capacities that its table shows. */

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { wekaRequests } from '../../../src/sim/workload/agentSessions.ts';
import { mooncakeRequests, textTraceRequests, tokenIdRequests } from '../../../src/sim/workload/importers.ts';
import type { WorkloadRequest } from '../../../src/sim/workload/request.ts';
import { chainsOf, type PrefixTrace } from '../../../src/studies/replay/study.ts';

export interface PublicTrace extends PrefixTrace {
  readonly name: string;
  /** Capacities in blocks that the table shows. */
  readonly capacities: readonly number[];
}

export const traceNames = ['conversation', 'agent', 'miniswe', 'miniswe5s', 'sharegpt'] as const;
export type TraceName = (typeof traceNames)[number];

/** Bytes of text that stand for one token where a trace has text only. */
const BYTES_PER_TOKEN = 4;

/** @returns undefined where the directory does not have the trace */
export function loadTrace(directory: string, name: TraceName): PublicTrace | undefined {
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

const readers: Readonly<Record<TraceName, (path: string) => PublicTrace>> = {
  conversation: (path) => {
    const capacities = [500, 1_000, 2_000, 3_000, 5_000, 7_000, 10_000, 20_000, 30_000, 50_000, 100_000];
    return { name: 'conversation', capacities, ...chainsOf(mooncakeRequests(lines(path), path), 512) };
  },
  agent: (path) => {
    const capacities = [1_000, 3_000, 5_000, 10_000, 20_000, 30_000, 50_000, 70_000, 100_000, 300_000];
    return { name: 'agent', capacities, ...chainsOf(wekaRequests(lines(path), path), 64) };
  },
  miniswe: (path) => miniswe('miniswe', textRequests(path)),
  /**
   * The same sessions, which follow each other in the original, each started five seconds after the one
   * before.
   */
  miniswe5s: (path) => {
    return miniswe('miniswe5s', sessionsApart(textRequests(path), 5e6));
  },
  sharegpt: (path) => {
    const capacities = [50, 100, 200, 400, 800, 1_200, 1_600, 2_400, 4_800, 9_600];
    return { name: 'sharegpt', capacities, ...chainsOf(tokenIdRequests(lines(path), path), 16) };
  },
};

const minisweCapacities = [50, 60, 70, 85, 100, 200, 400, 800, 1_500, 3_000];
function miniswe(name: string, requests: readonly WorkloadRequest[]): PublicTrace {
  return { name, capacities: minisweCapacities, ...chainsOf(requests, 64, BYTES_PER_TOKEN) };
}

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
