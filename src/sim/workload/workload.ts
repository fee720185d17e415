/**
 * A workload that can be streamed: the requests known before the simulation, in order of arrival with their
 * ids, and for closed loops the plan of the sessions whose later rounds the simulation brings forth.
 * Streaming twice gives the same requests. Open-loop workloads hold nothing but their clients in memory;
 * closed-loop ones hold some 40 bytes a session.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { type ClientSpec, isClosedLoop, type WorkloadSpec } from '../description/workloadSpec.ts';
import { GoRandom } from '../random/goRand.ts';
import { NO_PREFIX, type Prefix } from './client.ts';
import {
  admitUsers,
  ConcurrencyStream,
  type ConcurrencyUsers,
  type SessionKind,
  type SessionPlan,
} from './closedLoop.ts';
import { type Limits, leadingSpans, MergedStream, type Plan, planWorkload } from './plan.ts';
import { drawCancellation, type RequestStream, type WorkloadRequest } from './request.ts';

const BLUEPRINT_SEED_OFFSET = 7_919n;

/** A workload that is ready to run: its clients and the stream of its requests. */
export interface Workload {
  readonly limits: Limits;
  readonly clients: readonly ClientSpec[];
  /** Present when some requests come only when others have finished. */
  readonly sessions: SessionPlan | undefined;
  /** A new stream from the first request on. */
  stream(): RequestStream;
}

const limitTable = optionTable({
  horizonUs: is.passed(),
  maxRequests: is.passed(),
  keepInWindows: is.optional(is.flag()),
  mostExpected: is.optional(is.passed()),
} satisfies Kinds<Limits>);

/**
 * Makes a workload of a specification: its clients, and the stream of its requests. `limits` default to what the spec says.
 * @throws {TierKVError} TKV_CONFIG for a workload without end, TKV_INPUT for parameters that no stream can be
 * drawn from.
 */
export function generateWorkload(spec: WorkloadSpec, limits: Partial<Limits> = {}): Workload {
  checkInputs(
    { spec, limits },
    { spec: is.fields({ seed: is.bigint(), category: is.text() }), limits: is.optional(is.object()) },
  );
  limitTable.read(limits, 'limits');
  checkInputs(limits, {
    horizonUs: is.optional(is.number()),
    maxRequests: is.optional(is.number()),
    keepInWindows: is.optional(is.flag()),
    mostExpected: is.optional(is.number()),
  });
  const bounds: Limits = {
    horizonUs: limits.horizonUs ?? spec.horizonUs,
    maxRequests: limits.maxRequests ?? spec.numRequests,
    keepInWindows: limits.keepInWindows ?? false,
    ...(limits.mostExpected === undefined ? {} : { mostExpected: limits.mostExpected }),
  };
  const plan = planWorkload(spec, bounds);
  const waits = plan.clients.map(
    (client) => isClosedLoop(client) && client.reasoning?.multiTurn !== undefined,
  );
  const concurrent = plan.clients.some((client) => client.concurrency > 0);
  if (!concurrent && !waits.includes(true)) {
    return {
      limits: bounds,
      clients: plan.clients,
      sessions: undefined,
      stream: () => {
        const merged = new MergedStream(plan);
        let count = 0;
        return {
          next: () => {
            const request = merged.next()?.request;
            if (request !== undefined) {
              request.id = `request_${count++}`;
              drawCancellation(request, plan.seed);
            }
            return request;
          },
        };
      },
    };
  }
  return closedLoopWorkload(plan, waits, concurrent);
}

function closedLoopWorkload(plan: Plan, waits: readonly boolean[], concurrent: boolean): Workload {
  const survey = surveySessions(plan, waits);
  const { maxRequests } = plan.limits;
  const users = admitUsers(plan.clients, plan.seed, maxRequests > 0 ? maxRequests - survey.kept : Infinity);
  const admitted = users.clientOf.length;
  const sessions = sessionPlan(
    plan,
    survey,
    users,
    concurrent ? budgetOf(maxRequests, survey.kept + admitted) : -1,
  );
  return {
    limits: plan.limits,
    clients: plan.clients,
    sessions,
    stream: () => {
      const first = roundZeroStream(plan, waits, survey);
      const seeds = new ConcurrencyStream(plan.clients, plan.prefixes, users, survey.sessions);
      let waiting = first();
      let count = 0;
      return {
        next: () => {
          let request: WorkloadRequest | undefined;
          if (waiting !== undefined && waiting.arrivalUs <= seeds.timeUs) {
            request = waiting;
            waiting = first();
          } else {
            request = seeds.next();
          }
          if (request !== undefined) {
            request.id = `request_${count++}`;
            drawCancellation(request, plan.seed);
          }
          return request;
        },
      };
    },
  };
}

function budgetOf(maxRequests: number, emitted: number): number {
  return maxRequests > 0 ? Math.max(0, maxRequests - emitted) : -1;
}

/** Result of one pass over all rounds: the sessions that the cut leaves, by client, and how many requests stay. */
interface Survey {
  /** For each client, the sort keys of its surviving sessions in the order of their ids as strings. */
  readonly keys: ReadonlyArray<BigUint64Array | undefined>;
  /** Number of the first session of each client. */
  readonly offsets: readonly number[];
  readonly prefixes: readonly Prefix[];
  readonly sessions: number;
  readonly kept: number;
}

const ID_DIGITS = 19;

/**
 * Decimal ids compare as strings as these numbers compare: filled up to 19 digits with zeros, shorter before
 * longer. They lie above 2^63 where an id of 18 digits begins with 93.
 */
function sortKey(sessionId: string): bigint {
  const digits = sessionId.slice('sess_'.length);
  return BigInt(digits.padEnd(ID_DIGITS, '0')) + BigInt(digits.length);
}

function surveySessions(plan: Plan, waits: readonly boolean[]): Survey {
  const found: bigint[][] = plan.clients.map(() => []);
  const prefixes: Prefix[] = plan.clients.map(() => NO_PREFIX);
  let kept = 0;
  if (waits.includes(true)) {
    const merged = new MergedStream(plan);
    for (let entry = merged.next(); entry !== undefined; entry = merged.next()) {
      const { request, index } = entry;
      if (waits[index] && request.round > 0) continue;
      kept++;
      if (!waits[index]) continue;
      if (found[index].length === 0) prefixes[index] = followUpPrefix(plan.clients[index], request);
      found[index].push(sortKey(request.sessionId));
    }
  } else {
    const merged = new MergedStream(plan);
    while (merged.next() !== undefined) kept++;
  }
  let sessions = 0;
  const offsets: number[] = [];
  const keys = found.map((ids) => {
    offsets.push(sessions);
    sessions += ids.length;
    return ids.length === 0 ? undefined : BigUint64Array.from(ids).sort();
  });
  return { keys, offsets, prefixes, sessions, kept };
}

/**
 * Follow-ups repeat the first `prefix_length` tokens of the client's first prompt; without that key, none.
 */
function followUpPrefix(client: ClientSpec, first: WorkloadRequest): Prefix {
  const tokens = client.prefixGroup === '' ? 0 : client.prefixLength;
  if (tokens === 0 || first.inputTokens < tokens || first.prompt.kind !== 'drawn') return NO_PREFIX;
  return { tokens, spans: leadingSpans(first.prompt.spans, tokens) };
}

function indexOfKey(keys: BigUint64Array, key: bigint): number {
  let low = 0;
  let high = keys.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The merged stream without the rounds that wait, with session numbers. */
function roundZeroStream(
  plan: Plan,
  waits: readonly boolean[],
  survey: Survey,
): () => WorkloadRequest | undefined {
  const merged = new MergedStream(plan);
  return () => {
    for (let entry = merged.next(); entry !== undefined; entry = merged.next()) {
      const { request, index } = entry;
      if (!waits[index]) return request;
      if (request.round > 0) continue;
      request.session = survey.offsets[index] + indexOfKey(survey.keys[index]!, sortKey(request.sessionId));
      return request;
    }
    return undefined;
  };
}

function sessionPlan(
  plan: Plan,
  survey: Survey,
  users: ConcurrencyUsers,
  followUpBudget: number,
): SessionPlan {
  const random = new GoRandom(BigInt.asIntN(64, plan.seed + BLUEPRINT_SEED_OFFSET));
  const total = survey.sessions + users.clientOf.length;
  const kinds: SessionKind[] = [];
  const kindOf = new Int32Array(total);
  const seeds = new BigInt64Array(total);
  survey.keys.forEach((keys, index) => {
    if (keys === undefined) return;
    const client = plan.clients[index];
    const turns = client.reasoning!.multiTurn!;
    const kind = kinds.push({
      client,
      maxRounds: client.walk?.maxRounds ?? turns.maxRounds,
      thinkTimeUs: turns.thinkTimeUs,
      accumulate: turns.accumulate,
      prefix: survey.prefixes[index],
    });
    for (let i = 0; i < keys.length; i++) {
      kindOf[survey.offsets[index] + i] = kind - 1;
      seeds[survey.offsets[index] + i] = random.int63();
    }
  });
  const kindOfClient = new Map<number, number>();
  for (let i = 0; i < users.clientOf.length; i++) {
    const index = users.clientOf[i];
    let kind = kindOfClient.get(index);
    if (kind === undefined) {
      const client = plan.clients[index];
      kind = kinds.length;
      kinds.push({
        client,
        maxRounds: Infinity,
        thinkTimeUs: client.thinkTimeUs,
        accumulate: false,
        prefix: plan.prefixes.get(client.prefixGroup) ?? NO_PREFIX,
      });
      kindOfClient.set(index, kind);
    }
    kindOf[survey.sessions + i] = kind;
    seeds[survey.sessions + i] = users.sessionSeeds[i];
  }
  return { kinds, kindOf, seeds, followUpBudget, horizonUs: plan.limits.horizonUs };
}
