/**
 * Upstream's generation written out the plain way, as an independent second opinion: everything is drawn in
 * order, all tokens are materialised, all requests are collected, sorted and cut. Slow and obvious on
 * purpose.
 */

import type { ActiveWindow, ClientSpec, WorkloadSpec } from '../../../src/sim/description/workloadSpec.ts';
import { GoRandom, PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { type ArrivalSampler, arrivalSampler, lengthSampler } from '../../../src/sim/random/samplers.ts';

export interface NaiveRequest {
  arrivalUs: number;
  clientId: string;
  sessionId: string;
  round: number;
  input: number[];
  output: number[];
  prefixTokens: number;
  deadlineUs: number;
  reasonRatio: number;
}

const tokens = (random: GoRandom, count: number): number[] =>
  Array.from({ length: count }, () => random.intn(128000));
const active = (us: number, windows: readonly ActiveWindow[]): boolean =>
  windows.length === 0 || windows.some((w) => us >= w.startUs && us < w.endUs);
const deadline = (us: number, timeoutUs: number | undefined, session: boolean): number =>
  timeoutUs === undefined ? (session ? us + 300_000_000 : 0) : timeoutUs === 0 ? 0 : us + timeoutUs;

/** Requests of a spec of plain clients: no cohorts, no concurrency, no window parameters. */
export function naiveRequests(spec: WorkloadSpec, maxRequests: number): NaiveRequest[] {
  const workload = new PartitionedRandom(spec.seed).stream('workload-gen');
  const prefixes = new Map<string, number[]>();
  for (const client of spec.clients) {
    if (client.prefixGroup === '' || prefixes.has(client.prefixGroup)) continue;
    prefixes.set(client.prefixGroup, tokens(workload, client.prefixLength || 50));
  }
  const overlaps = (a: ClientSpec, b: ClientSpec): boolean =>
    a.windows.length === 0 ||
    b.windows.length === 0 ||
    a.windows.some((x) => b.windows.some((y) => x.startUs < y.endUs && y.startUs < x.endUs));
  const anyWindows = spec.clients.some((client) => client.windows.length > 0);
  const all: NaiveRequest[] = [];
  for (const client of spec.clients) {
    let sum = 0;
    for (const other of spec.clients) if (!anyWindows || overlaps(client, other)) sum += other.rateFraction;
    const gaps = arrivalSampler(client.arrival, (spec.aggregateRate * (client.rateFraction / sum)) / 1e6);
    const random = new GoRandom(workload.int63());
    const prefix = prefixes.get(client.prefixGroup) ?? [];
    all.push(...clientRequests(client, gaps, random, prefix, spec.horizonUs, maxRequests));
  }
  all.sort((a, b) => a.arrivalUs - b.arrivalUs);
  return maxRequests > 0 ? all.slice(0, maxRequests) : all;
}

function clientRequests(
  client: ClientSpec,
  gaps: ArrivalSampler,
  random: GoRandom,
  prefix: readonly number[],
  horizonUs: number,
  maxRequests: number,
): NaiveRequest[] {
  const input = lengthSampler(client.inputLength);
  const output = lengthSampler(client.outputLength);
  const ratio = client.reasoning?.reasonRatio;
  const turns = client.reasoning?.multiTurn;
  const lastEndUs = Math.max(...client.windows.map((w) => w.endUs), Number.NEGATIVE_INFINITY);
  const cap = maxRequests > 0 ? 2 * maxRequests : Infinity;
  const out: NaiveRequest[] = [];
  let nowUs = 0;
  let count = 0;
  while (nowUs < horizonUs && count < cap) {
    nowUs += gaps.next(random);
    if (nowUs >= horizonUs) break;
    if (!active(nowUs, client.windows)) {
      if (nowUs >= lastEndUs) break;
      continue;
    }
    if (turns === undefined) {
      const inLength = input.next(random);
      const outLength = output.next(random);
      const own = tokens(random, inLength);
      out.push({
        arrivalUs: nowUs,
        clientId: client.id,
        sessionId: '',
        round: 0,
        input: [...prefix, ...own],
        output: tokens(random, outLength),
        prefixTokens: prefix.length,
        deadlineUs: deadline(nowUs, client.timeoutUs, client.closedLoop ?? false),
        reasonRatio: 0,
      });
      count++;
      continue;
    }
    const sessionId = `sess_${random.int63()}`;
    const ratios = ratio === undefined ? undefined : lengthSampler(ratio);
    let arrivalUs = nowUs;
    const context: number[] = [];
    const rounds: NaiveRequest[] = [];
    for (let round = 0; round < turns.maxRounds; round++) {
      const inLength = input.next(random);
      const outLength = output.next(random);
      const own = tokens(random, inLength);
      const answer = tokens(random, outLength);
      rounds.push({
        arrivalUs,
        clientId: client.id,
        sessionId,
        round,
        input: [...prefix, ...(turns.accumulate ? context : []), ...own],
        output: answer,
        prefixTokens: prefix.length,
        deadlineUs: deadline(arrivalUs, client.timeoutUs, true),
        reasonRatio: Math.min(1, Math.max(0, (ratios?.next(random) ?? 0) / 100)),
      });
      context.push(...own, ...answer);
      arrivalUs += turns.thinkTimeUs + outLength;
    }
    count += rounds.length;
    for (const request of rounds) {
      if (request.arrivalUs >= horizonUs) break;
      if (active(request.arrivalUs, client.windows)) out.push(request);
    }
  }
  return out;
}
