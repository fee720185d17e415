/**
 * `tierkv observe`: drives a server of OpenAI's completions API with a workload, each request at its time, and records when
 * its tokens came. Prompts are sent as token ids, so their lengths and shared prefixes are those of the workload; answers are
 * asked for at their length. The lines are those of a gateway's trace, which `latency fit` and `compare` read.
 */

import { setTimeout as pause } from 'node:timers/promises';
import { configError, TierKVError } from '../runtime/errors.ts';
import type { WorkloadRequest } from '../sim/workload/request.ts';
import { TokenReader } from '../sim/workload/tokens.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';

export interface ObserveOptions {
  /** Of the server: `http://localhost:8000`, with or without `/v1`. */
  readonly target: string;
  /** Name of the model; the first that the server lists unless set. */
  readonly model?: string;
  /** Token ids are sent from 0 to this. */
  readonly vocabulary: number;
  /** By how much arrivals are faster than in the workload. */
  readonly speedup: number;
  /** Longest time of a request. */
  readonly timeoutMs: number;
  /** Requests that are sent one by one before, and not recorded: a fresh server compiles and captures. */
  readonly warmUp?: number;
  readonly apiKey?: string;
  readonly signal?: AbortSignal;
  readonly progress?: (ended: number, begun: number) => void;
}

/** A line of the result; times in µs, lengths as the server counted them where it did. */
interface ObservedLine {
  readonly arrival_us: number;
  readonly prompt_tokens: number;
  readonly output_tokens: number;
  readonly ttft_us: number;
  readonly e2e_us: number;
  /** -1 where the server does not say. */
  readonly cached_tokens: number;
  readonly request_id: string;
  readonly model: string;
  readonly session: string;
  readonly outcome: 'completed' | 'failed';
  /** What the server answered, or what the connection came to; '' where all went well. */
  readonly error: string;
}

export interface Observation {
  readonly model: string;
  readonly lines: readonly ObservedLine[];
  /** The longest time by which a request was sent late, since this process or machine was busy. */
  readonly latestUs: number;
}

/** Most requests of an observation: each keeps a connection while it is served. */
const maxRequests = 1_000_000;

function endpoint(target: string, name: string): URL {
  let url: URL;
  try {
    url = new URL(target);
  } catch {
    throw configError('--target', `is "${shownPlain(target)}"`, 'Write http://HOST:PORT.');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw configError('--target', `is "${shownPlain(target)}"`, 'Write http://HOST:PORT.');
  }
  const base = url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
  url.pathname = `${base}/v1/${name}`;
  return url;
}

function headersOf({ apiKey }: ObserveOptions): Record<string, string> {
  const auth = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  return { 'content-type': 'application/json', ...auth };
}

function failed(target: string, cause: unknown): TierKVError {
  const reason =
    cause instanceof Error ? ((cause.cause as Error | undefined)?.message ?? cause.message) : String(cause);
  const remedy = 'Start the server, or name its address with --target.';
  return new TierKVError('TKV_IO', `${target} cannot be reached: ${reason}. ${remedy}`, {
    cause,
    field: '--target',
  });
}

/** The model that the server serves first. */
async function servedModel(options: ObserveOptions): Promise<string> {
  const url = endpoint(options.target, 'models');
  let body: unknown;
  try {
    const answer = await fetch(url, {
      headers: headersOf(options),
      signal: AbortSignal.timeout(options.timeoutMs),
    });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    body = await answer.json();
  } catch (cause) {
    throw failed(options.target, cause);
  }
  const id = (body as { data?: { id?: unknown }[] } | null)?.data?.[0]?.id;
  if (typeof id === 'string') return id;
  throw configError(
    '--model',
    `is missing, and ${options.target} lists no model`,
    'Name the model that is served.',
  );
}

interface Answer {
  firstTokenMs: number;
  lastTokenMs: number;
  pieces: number;
  promptTokens: number;
  outputTokens: number;
  cachedTokens: number;
  error: string;
}

const number = (value: unknown, otherwise: number): number => (typeof value === 'number' ? value : otherwise);

/** One event of the stream. */
function takeEvent(data: string, answer: Answer, nowMs: number): void {
  const read: unknown = JSON.parse(data);
  if (typeof read !== 'object' || read === null) throw new Error('each event of a stream must be an object');
  const event = read as {
    choices?: unknown[];
    error?: { message?: unknown };
    usage?: {
      prompt_tokens?: unknown;
      completion_tokens?: unknown;
      prompt_tokens_details?: { cached_tokens?: unknown } | null;
    };
  };
  if (event.error !== undefined) answer.error = String(event.error?.message ?? 'an error without a message');
  if (Array.isArray(event.choices) && event.choices.length > 0) {
    if (answer.pieces++ === 0) answer.firstTokenMs = nowMs;
    answer.lastTokenMs = nowMs;
  }
  const { usage } = event;
  if (usage === undefined || usage === null) return;
  answer.promptTokens = number(usage.prompt_tokens, answer.promptTokens);
  answer.outputTokens = number(usage.completion_tokens, answer.outputTokens);
  answer.cachedTokens = number(usage.prompt_tokens_details?.cached_tokens, answer.cachedTokens);
}

async function ask(url: URL, body: string, options: ObserveOptions): Promise<Answer> {
  const answer: Answer = {
    firstTokenMs: 0,
    lastTokenMs: 0,
    pieces: 0,
    promptTokens: -1,
    outputTokens: -1,
    cachedTokens: -1,
    error: '',
  };
  const stops = [
    AbortSignal.timeout(options.timeoutMs),
    ...(options.signal === undefined ? [] : [options.signal]),
  ];
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: headersOf(options),
      body,
      signal: AbortSignal.any(stops),
    });
    if (!response.ok || response.body === null) {
      answer.error = `${response.status} ${(await response.text()).slice(0, 400)}`;
      return answer;
    }
    const decoder = new TextDecoder();
    let text = '';
    let isDone = false;
    for await (const chunk of response.body) {
      const nowMs = performance.now();
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
        const line = text.slice(0, end).trim();
        text = text.slice(end + 1);
        if (!line.startsWith('data:')) continue;
        const data = line.slice('data:'.length).trim();
        if (data === '[DONE]') isDone = true;
        else takeEvent(data, answer, nowMs);
      }
    }
    if (answer.pieces === 0 && answer.error === '') answer.error = 'the stream held no token';
    // an answer that was cut off does not count: its times cover half an answer
    if (!isDone && answer.error === '') answer.error = 'the stream broke off before [DONE]';
  } catch (cause) {
    options.signal?.throwIfAborted();
    answer.error =
      cause instanceof Error ? ((cause.cause as Error | undefined)?.message ?? cause.message) : String(cause);
  }
  return answer;
}

/** Tokens of the prompt and of the answer of a request that warms a server up. */
const warmUpTokens = 32;

function bodyOf(model: string, prompt: readonly number[], tokens: number): string {
  const sampling = { ignore_eos: true, temperature: 0 };
  const streaming = { stream: true, stream_options: { include_usage: true } };
  return JSON.stringify({ model, prompt, max_tokens: tokens, ...sampling, ...streaming });
}

/**
 * Sends each request at its arrival, whatever became of those before, and waits for all of them.
 * @throws {TierKVError} TKV_IO where the server cannot be reached; TKV_CONFIG for an option out of range; TKV_INPUT where
 * every request failed.
 */
export async function observe(
  requests: Iterable<WorkloadRequest>,
  options: ObserveOptions,
): Promise<Observation> {
  const { vocabulary, speedup } = options;
  const model = options.model ?? (await servedModel(options));
  const url = endpoint(options.target, 'completions');
  const reader = new TokenReader();
  const lines: ObservedLine[] = [];
  const pending: Promise<void>[] = [];
  let latestUs = 0;
  let ended = 0;
  let firstUs: number | undefined;
  for (let i = 0; i < (options.warmUp ?? 0); i++) {
    const prompt = Array.from({ length: warmUpTokens }, (_, at) => (i * warmUpTokens + at) % vocabulary);
    await ask(url, bodyOf(model, prompt, warmUpTokens), options);
  }
  const startMs = performance.now();
  for (const request of requests) {
    if (pending.length === maxRequests) {
      throw configError(
        '--num-requests',
        `leaves more than ${maxRequests}`,
        'Observe a part of the workload.',
      );
    }
    firstUs ??= request.arrivalUs;
    // upstream's ids reach beyond small vocabularies: folding keeps equal tokens equal, and so shared prefixes
    const prompt = Array.from(reader.prompt(request), (token) => token % vocabulary);
    const wanted = Math.max(1, request.outputTokens);
    const body = bodyOf(model, prompt, wanted);
    const atMs = startMs + (request.arrivalUs - firstUs) / 1000 / speedup;
    const waitMs = atMs - performance.now();
    if (waitMs > 1)
      await pause(waitMs, undefined, options.signal === undefined ? {} : { signal: options.signal });
    const sentMs = performance.now();
    latestUs = Math.max(latestUs, Math.round(1000 * (sentMs - atMs)));
    pending.push(
      ask(url, body, options).then((answer) => {
        const since = (ms: number): number => Math.round(1000 * (ms - sentMs));
        const isWhole = answer.error === '';
        lines.push({
          arrival_us: Math.round(1000 * (sentMs - startMs)),
          prompt_tokens: answer.promptTokens >= 0 ? answer.promptTokens : prompt.length,
          output_tokens: answer.outputTokens >= 0 ? answer.outputTokens : answer.pieces,
          ttft_us: isWhole ? since(answer.firstTokenMs) : -1,
          e2e_us: isWhole ? since(answer.lastTokenMs) : -1,
          cached_tokens: answer.cachedTokens,
          request_id: request.id,
          model,
          session: request.sessionId,
          outcome: isWhole ? 'completed' : 'failed',
          error: answer.error,
        });
        options.progress?.(++ended, pending.length);
      }),
    );
  }
  await Promise.all(pending);
  lines.sort((a, b) => a.arrival_us - b.arrival_us);
  if (lines.length > 0 && lines.every(({ outcome }) => outcome === 'failed')) {
    throw new TierKVError(
      'TKV_INPUT',
      `${options.target}: all ${lines.length} requests failed, the first with: ${shownPlain(lines[0].error)}. Mend what it ` +
        'says: --vocabulary holds ids below the model’s, --model names what is served, prompts fit its context',
      { field: '--target' },
    );
  }
  return { model, lines, latestUs };
}
