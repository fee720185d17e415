/**
 * Why prompt caches miss, from recorded requests alone. Each request is compared with the earlier ones that hold the most of
 * its lines, since clients send no ids of conversations. It continues one of them, is a branch or a beginning, or leaves one
 * at a place behind which cached text follows: that is a finding, with its cause and its price in tokens. Where the server
 * counted what it found cached, a prompt that continues and was not found is a finding about the server.
 *
 * Requests that come back after `EARLIER_MOST` others share a line with more requests than are looked at; the latest are.
 */

import { formatCounted } from '../../io/printing/text.ts';
import { configError, requireInteger, requirePositive } from '../../runtime/errors.ts';
import { chooseCoefficients, loadHardware, loadModel, modelDefaults } from '../../sim/build/dataFiles.ts';
import { BatchSums } from '../../sim/latency/latencyModel.ts';
import { usualLatency } from '../../sim/latency/latencyNames.ts';
import { newLatencyModel } from '../../sim/latency/makeModel.ts';
import {
  type Cause,
  type Compared,
  causes,
  compare,
  type Difference,
  piecesOf,
  promptBytes,
} from './firstDifference.ts';
import type { Recording, SentRequest } from './recordedRequests.ts';

/** The fate of a turn's cached prefix. */
type Verdict = 'begins' | 'continues' | 'changed' | 'evicted' | 'elsewhere' | 'unknown';

export interface ExaminedTurn {
  readonly at: string;
  /** Number of its conversation, from 1. */
  readonly conversation: number;
  /** Number in its conversation, from 1. */
  readonly turn: number;
  readonly verdict: Verdict;
  /** The earlier request that it was compared with; empty for a beginning. */
  readonly against: string;
  readonly promptTokens: number;
  /** Tokens that the server found cached; -1 where it did not say. */
  readonly cachedTokens: number;
  /** Tokens that were computed again. */
  readonly lostTokens: number;
  /** Where the prompt leaves the earlier one, for `changed`. */
  readonly difference?: Difference;
}

/** One cause at one place of a conversation, over all turns that it concerns. */
export interface FoundCause {
  readonly conversation: number;
  readonly cause: Cause | 'evicted' | 'elsewhere';
  readonly title: string;
  readonly remedy: string;
  readonly path: string;
  readonly detail: string;
  /** The first turn that it concerns. */
  readonly first: ExaminedTurn;
  readonly turns: number;
  readonly lostTokens: number;
  /** Null without a model and GPU; USD also without a price. */
  readonly lostSeconds: number | null;
  readonly lostUsd: number | null;
}

export interface Diagnosis {
  readonly turns: readonly ExaminedTurn[];
  readonly findings: readonly FoundCause[];
  readonly conversations: number;
  /** Entries that hold no prompt. */
  readonly others: number;
  readonly promptTokens: number;
  readonly lostTokens: number;
  /** Whether tokens were counted by servers; else four bytes are one. */
  readonly isCounted: boolean;
}

interface Prices {
  /** Seconds that a prefill of these tokens takes. */
  readonly prefillSeconds: (tokens: number) => number;
  /** USD an hour of the GPUs of one server. */
  readonly usdPerHour?: number;
}

const BYTES_A_TOKEN = 4;
/** Requests with a line in common that are looked at, and how many of them are compared in full. */
const EARLIER_MOST = 48;
const COMPARED_MOST = 6;
/** A server that found less than this share of what a prompt continues had dropped it; blocks and templates take some. */
const FOUND_SHARE = 0.5;
/** Fewer tokens may be the block that is not full. */
const EVICTED_TOKENS = 256;

const serverCauses = {
  evicted: {
    title: 'the server dropped what it had',
    remedy: 'Give the cache more room or a lower tier, or send the next turn sooner.',
  },
  elsewhere: {
    title: 'the turn went to another server',
    remedy: 'Route turns of a conversation to one server: by prefix, or by a session header.',
  },
} as const;

interface Seen {
  readonly request: SentRequest;
  /** Bytes of its lines. */
  readonly pieces: ReadonlyMap<string, number>;
  /** Lines that the request before it in its conversation has not, with their bytes; none for a beginning. */
  readonly fresh: ReadonlyMap<string, number>;
  readonly conversation: number;
  readonly turn: number;
}

interface ChargedMachine {
  /** Name of a model of the package, or the path of its config.json. */
  readonly model: string | undefined;
  /** Default: the model's own. */
  readonly gpu?: string | undefined;
  /** GPUs of one server. Default: the model's own. */
  readonly tp?: number | undefined;
  /** USD an hour of one GPU. */
  readonly gpuPrice?: number | undefined;
}

/** Tokens of one step of a prefill, as servers cut long prompts. */
const STEP_TOKENS = 8192;

/**
 * The price of computing again on a machine, by the simulator's model of steps, one prompt at a time; undefined without a model.
 * @throws TKV_CONFIG for a name that is unknown, and for a machine without a model
 */
export function machinePrices({ model: name, gpu, tp: asked, gpuPrice }: ChargedMachine): Prices | undefined {
  if (name === undefined) {
    const beside = Object.entries({ gpu, tp: asked, gpuPrice }).find(([, value]) => value !== undefined);
    if (beside === undefined) return undefined;
    throw configError(beside[0], 'has no effect without a model', 'Name the model that was served.');
  }
  const model = loadModel(name);
  const defaults = modelDefaults(model.name);
  const hardware = loadHardware(gpu ?? defaults?.gpu ?? 'H100');
  const tp = requireInteger('tp', asked ?? defaults?.tp ?? 1, 1, 1024);
  if (gpuPrice !== undefined) requirePositive('gpuPrice', gpuPrice);
  const { coefficients } = chooseCoefficients(usualLatency, hardware, undefined);
  const latency = newLatencyModel({ model, hardware, tp, dp: 1, coefficients });
  const prefillSeconds = (tokens: number): number => {
    let us = 0;
    for (let done = 0; done < tokens; done += STEP_TOKENS) {
      const sums = new BatchSums(latency.windowTokens);
      const newTokens = Math.min(STEP_TOKENS, tokens - done);
      sums.add({ promptTokens: tokens, progressTokens: done, newTokens, outputTokens: 1 });
      us += latency.stepTimeUs(sums);
    }
    return us / 1e6;
  };
  return { prefillSeconds, ...(gpuPrice === undefined ? {} : { usdPerHour: gpuPrice * tp }) };
}

/** @param recordings in the order in which their requests were sent */
export function diagnose(recordings: readonly Recording[], prices?: Prices): Diagnosis {
  const requests = recordings.flatMap((recording) => recording.requests);
  const seen: Seen[] = [];
  const byLine = new Map<string, number[]>();
  const turns: ExaminedTurn[] = [];
  let conversations = 0;
  const lengths = new Map<number, number>();
  for (const request of requests) {
    const bytes = promptBytes(request.prompt);
    const perToken = request.promptTokens > 0 && bytes > 0 ? bytes / request.promptTokens : BYTES_A_TOKEN;
    const pieces = new Map<string, number>();
    for (const part of request.prompt.parts) {
      for (const { key, bytes: size } of piecesOf(part)) pieces.set(key, size);
    }
    const found = request.prompt.isWhole ? previousOf(request, pieces, seen, byLine) : undefined;
    const conversation = found?.earlier.conversation ?? ++conversations;
    const turn = (lengths.get(conversation) ?? 0) + 1;
    lengths.set(conversation, turn);
    turns.push(turnOf(request, found, { conversation, turn, bytes, perToken }));
    const known = found === undefined ? pieces : found.earlier.pieces;
    const fresh = new Map([...pieces].filter(([key]) => !known.has(key)));
    const index = seen.push({ request, pieces, fresh, conversation, turn }) - 1;
    for (const key of pieces.keys()) {
      const list = byLine.get(key);
      if (list === undefined) byLine.set(key, [index]);
      else {
        list.push(index);
        if (list.length > EARLIER_MOST) list.shift();
      }
    }
  }
  const sum = (of: (turn: ExaminedTurn) => number): number => turns.reduce((all, turn) => all + of(turn), 0);
  return {
    turns,
    findings: findingsOf(turns, prices),
    conversations,
    others: recordings.reduce((all, { others }) => all + others, 0),
    promptTokens: sum(({ promptTokens }) => promptTokens),
    lostTokens: sum(({ lostTokens }) => lostTokens),
    isCounted: requests.length > 0 && requests.every(({ promptTokens }) => promptTokens > 0),
  };
}

interface Previous {
  readonly earlier: Seen;
  readonly compared: Compared;
}

/** The earlier request that this one continues or was made from; undefined for a beginning. */
function previousOf(
  request: SentRequest,
  pieces: ReadonlyMap<string, number>,
  seen: readonly Seen[],
  byLine: ReadonlyMap<string, readonly number[]>,
): Previous | undefined {
  const shared = new Map<number, number>();
  for (const [key, bytes] of pieces) {
    for (const index of byLine.get(key) ?? []) shared.set(index, (shared.get(index) ?? 0) + bytes);
  }
  const candidates = [...shared]
    .filter(([index]) => mayBelong(seen[index].request, request))
    .sort(([a, x], [b, y]) => y - x || b - a)
    .slice(0, COMPARED_MOST)
    .map(([index]): Previous => {
      const earlier = seen[index];
      return { earlier, compared: compare(earlier.request.prompt, request.prompt) };
    });
  // a prompt that continues an earlier one has lost nothing, unless another one would have given more
  const gain = ({ compared }: Previous): number =>
    compared.commonBytes + (compared.difference?.lostBytes ?? 0);
  const told = candidates.filter((each) => each.compared.continues || isLaterTurn(each, pieces));
  return told.sort((a, b) => gain(b) - gain(a) || b.earlier.turn - a.earlier.turn)[0];
}

/**
 * Whether a request that leaves an earlier one is a later turn of its conversation, and no other conversation from the same
 * mould: it holds what the earlier one had said last. Of a beginning that is not known, and another text in a message of it
 * may be another task.
 */
function isLaterTurn({ earlier, compared }: Previous, pieces: ReadonlyMap<string, number>): boolean {
  const { difference } = compared;
  if (difference === undefined) return false;
  if (earlier.fresh.size === 0) return difference.cause !== 'edited' || difference.isBeforeMessages;
  let [kept, all] = [0, 0];
  for (const [key, bytes] of earlier.fresh) {
    all += bytes;
    if (pieces.has(key)) kept += bytes;
  }
  return kept >= all / 2;
}

/** Whether two requests may be of one conversation, by what their clients said. */
function mayBelong(earlier: SentRequest, later: SentRequest): boolean {
  return earlier.session === '' || later.session === '' || earlier.session === later.session;
}

interface TurnFacts {
  readonly conversation: number;
  readonly turn: number;
  readonly bytes: number;
  readonly perToken: number;
}

function turnOf(
  request: SentRequest,
  found: Previous | undefined,
  { conversation, turn, bytes, perToken }: TurnFacts,
): ExaminedTurn {
  const tokens = (count: number): number => Math.round(count / perToken);
  const { cachedTokens } = request;
  const base = {
    at: request.at,
    conversation,
    turn,
    against: found?.earlier.request.at ?? '',
    promptTokens: request.promptTokens > 0 ? request.promptTokens : tokens(bytes),
    cachedTokens,
    lostTokens: 0,
  };
  if (!request.prompt.isWhole) return { ...base, verdict: 'unknown' };
  if (found === undefined) return { ...base, verdict: 'begins' };
  const { difference, commonBytes } = found.compared;
  if (difference !== undefined) {
    return { ...base, verdict: 'changed', lostTokens: tokens(difference.lostBytes), difference };
  }
  const common = tokens(commonBytes);
  const missed = common - Math.max(0, cachedTokens);
  if (cachedTokens < 0 || cachedTokens >= FOUND_SHARE * common || missed < EVICTED_TOKENS) {
    const moved = cachedTokens < 0 ? movedMark(found.earlier.request, request) : undefined;
    return moved === undefined
      ? { ...base, verdict: 'continues' }
      : { ...base, verdict: 'changed', lostTokens: common, difference: moved };
  }
  const moved = movedMark(found.earlier.request, request);
  if (moved !== undefined) return { ...base, verdict: 'changed', lostTokens: missed, difference: moved };
  const { backend } = found.earlier.request;
  const isElsewhere = backend !== '' && request.backend !== '' && backend !== request.backend;
  return { ...base, verdict: isElsewhere ? 'elsewhere' : 'evicted', lostTokens: missed };
}

/**
 * A mark of `cache_control` on tools or the system text that the later request has not: servers that look caches up at marks
 * alone find nothing there. The mark on the newest message moves with it, as it must.
 */
function movedMark(earlier: SentRequest, later: SentRequest): Difference | undefined {
  let promptByte = 0;
  for (const [i, part] of earlier.prompt.parts.entries()) {
    const other = later.prompt.parts[i];
    if (part.kind === 'message' || other === undefined) return undefined;
    if (part.isMarked && !other.isMarked) {
      const [before, after] = ['cache_control', 'no cache_control'];
      return {
        isBeforeMessages: true,
        cause: 'cacheControl',
        path: other.path,
        promptByte,
        partByte: 0,
        before,
        after,
        detail: '',
        lostBytes: 0,
      };
    }
    if (part.kind !== 'setting') promptByte += Buffer.byteLength(part.text);
  }
  return undefined;
}

function findingsOf(turns: readonly ExaminedTurn[], prices: Prices | undefined): FoundCause[] {
  const groups = new Map<string, ExaminedTurn[]>();
  for (const turn of turns) {
    const cause = causeOf(turn);
    if (cause === undefined) continue;
    // the place of a message grows with its conversation; one of tools or the system text stays
    const place = turn.difference?.path.replace(/\d+/g, '#') ?? '';
    const key = [turn.conversation, cause, place, turn.difference?.detail ?? ''].join('\n');
    groups.set(key, [...(groups.get(key) ?? []), turn]);
  }
  const findings = [...groups.values()].map((group): FoundCause => {
    const [first] = group;
    const cause = causeOf(first) as FoundCause['cause'];
    const { title, remedy } =
      cause in serverCauses ? serverCauses[cause as 'evicted'] : causes[cause as Cause];
    const lostTokens = group.reduce((all, turn) => all + turn.lostTokens, 0);
    const seconds =
      prices === undefined
        ? null
        : group.reduce((all, turn) => all + prices.prefillSeconds(turn.lostTokens), 0);
    return {
      conversation: first.conversation,
      cause,
      title,
      remedy,
      path: first.difference?.path ?? '',
      detail: first.difference?.detail ?? '',
      first,
      turns: group.length,
      lostTokens,
      lostSeconds: seconds,
      lostUsd:
        seconds === null || prices?.usdPerHour === undefined ? null : (seconds / 3600) * prices.usdPerHour,
    };
  });
  return findings.sort((a, b) => b.lostTokens - a.lostTokens || a.conversation - b.conversation);
}

function causeOf({ verdict, difference }: ExaminedTurn): FoundCause['cause'] | undefined {
  if (verdict === 'evicted' || verdict === 'elsewhere') return verdict;
  return difference?.cause;
}

/** The diagnosis in one sentence. */
export function diagnosisText({
  turns,
  findings,
  conversations,
  promptTokens,
  lostTokens,
}: Diagnosis): string {
  const all = `${formatCounted(turns.length, 'requests')} in ${formatCounted(conversations, 'conversations')}`;
  if (findings.length === 0) return `Nothing broke a cache: ${all}.`;
  const share = promptTokens === 0 ? 0 : (100 * lostTokens) / promptTokens;
  return (
    `${formatCounted(findings.length, 'causes')} made ${formatCounted(lostTokens, 'tokens')} be computed again, ` +
    `${share.toFixed(1)} % of all prompt tokens: ${all}.`
  );
}
