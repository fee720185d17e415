/**
 * `tierkv observe`: drives a server of OpenAI's completions API with a workload, each request at its time, and records when
 * its tokens came. Prompts are sent as token ids, so their lengths and shared prefixes are those of the workload; answers are
 * asked for at their length. The lines are those of a gateway's trace, which `latency fit` and `compare` read.
 */

import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { configError, namedError, type TierKVError } from '../runtime/errors.ts';
import type { WorkloadRequest } from '../sim/workload/request.ts';
import { TokenReader } from '../sim/workload/tokens.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';
import { AnswerMeter } from './gateway/answerMeter.ts';
import { type Encoder, loadTokenizer } from './gateway/prompts.ts';

export interface ObserveOptions {
  /** Address of the server: `http://localhost:8000`, with or without `/v1`. */
  readonly target: string;
  /** Name of the model; the first that the server lists unless set. */
  readonly model?: string;
  /** Token ids are sent from 0 to this. */
  readonly vocabulary: number;
  /** Factor by which arrivals are faster than in the workload. */
  readonly speedup: number;
  /** Longest time of a request. */
  readonly timeoutMs: number;
  /** Requests that are sent one by one before, and not recorded: a fresh server compiles and captures. */
  readonly warmUp?: number;
  readonly apiKey?: string;
  /** The `tokenizer.json` of the model: counts the tokens of answers that the server does not count. */
  readonly tokenizer?: string;
  readonly signal?: AbortSignal;
  readonly progress?: (ended: number, begun: number) => void;
}

/** A line of the result; times in µs, lengths as the server counted them where it did. */
interface ObservedLine {
  readonly arrival_us: number;
  readonly prompt_tokens: number;
  /** -1 where they were not counted: an event of a stream may hold several. A fit leaves such lines out. */
  readonly output_tokens: number;
  readonly ttft_us: number;
  readonly e2e_us: number;
  /** -1 where the server does not say. */
  readonly cached_tokens: number;
  readonly request_id: string;
  readonly model: string;
  readonly session: string;
  readonly outcome: 'completed' | 'failed';
  /** The error of the server or the connection; '' where all went well. */
  readonly error: string;
  /** The reason for which its answer ended, where that is not known. */
  readonly unknown_end?: string;
}

export interface Observation {
  readonly model: string;
  readonly lines: readonly ObservedLine[];
  /** The longest time by which a request was sent late, since this process or machine was busy. */
  readonly latestUs: number;
  /** Whole answers whose tokens are not known: the server did not count them, and there was no tokenizer. */
  readonly uncounted: number;
}

/** Most requests of an observation: each keeps a connection while it is served. */
const maxRequests = 1_000_000;

function endpoint(target: string, name: string): URL {
  let url: URL;
  try {
    url = new URL(target);
  } catch {
    throw configError('target', `is "${shownPlain(target)}"`, 'Write http://HOST:PORT.');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw configError('target', `is "${shownPlain(target)}"`, 'Write http://HOST:PORT.');
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
  return namedError(
    'TKV_IO',
    { field: 'target', cause },
    (name) =>
      `${target} cannot be reached: ${reason}. Start the server, or name its address with ${name('target')}.`,
  );
}

/** The model that the server serves first. */
async function servedModel(options: ObserveOptions): Promise<string> {
  const url = endpoint(options.target, 'models');
  let body: unknown;
  try {
    const answer = await sent(url, '', headersOf(options), AbortSignal.timeout(options.timeoutMs));
    const { statusCode = 0 } = answer;
    if (statusCode < 200 || statusCode > 299) throw new Error(`it answers ${statusCode}`);
    body = JSON.parse(await text(answer));
  } catch (cause) {
    throw failed(options.target, cause);
  }
  const id = (body as { data?: { id?: unknown }[] } | null)?.data?.[0]?.id;
  if (typeof id === 'string') return id;
  throw configError(
    'model',
    `is missing, and ${options.target} lists no model`,
    'Name the model that is served.',
  );
}

interface Answer {
  firstTokenMs: number;
  lastTokenMs: number;
  promptTokens: number;
  outputTokens: number;
  cachedTokens: number;
  /** The end of the answer that the meter does not know, as it says it. */
  unknownEnd: string;
  error: string;
}

/** Letters of a server's error that are kept before its message is looked for. */
const ERROR_LETTERS = 400;

/**
 * Begins a request whose head may take as long as its signal lets it: a busy server may queue it for minutes, and `fetch` has limits
 * of its own. @param body '' for a request that asks without one
 */
async function sent(
  url: URL,
  body: string,
  headers: Record<string, string>,
  signal: AbortSignal,
  isFresh: boolean = false,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const open = url.protocol === 'https:' ? https.request : http.request;
    const length = body === '' ? {} : { 'content-length': Buffer.byteLength(body) };
    const method = body === '' ? 'GET' : 'POST';
    const connection = isFresh ? { agent: false } : {};
    const request = open(url, { method, headers: { ...headers, ...length }, signal, ...connection });
    request.on('response', resolve);
    request.on('error', (error: NodeJS.ErrnoException) => {
      // a connection that the server closed as it was used again
      const isStale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
      if (isStale) resolve(sent(url, body, headers, signal, true));
      else reject(error);
    });
    request.end(body);
  });
}

/** Sends a request, and reads its answer as the gateway does: one function says what an answer is. */
async function ask(
  url: URL,
  body: string,
  options: ObserveOptions,
  encoder: Encoder | undefined,
): Promise<Answer> {
  const answer: Answer = {
    firstTokenMs: 0,
    lastTokenMs: 0,
    promptTokens: -1,
    outputTokens: -1,
    cachedTokens: -1,
    unknownEnd: '',
    error: '',
  };
  const stops = [
    AbortSignal.timeout(options.timeoutMs),
    ...(options.signal === undefined ? [] : [options.signal]),
  ];
  try {
    const response = await sent(url, body, headersOf(options), AbortSignal.any(stops));
    const { statusCode: status = 0, headers } = response;
    // a stream was asked for: what does not call itself JSON is read as one
    const streams = !/json/i.test(String(headers['content-type'] ?? ''));
    let nowMs = 0;
    let said = '';
    const saidBy = encoder === undefined ? undefined : (piece: string) => void (said += piece);
    const meter = new AnswerMeter(
      streams,
      1,
      (isFirst) => {
        if (isFirst) answer.firstTokenMs = nowMs;
        answer.lastTokenMs = nowMs;
      },
      saidBy,
    );
    let shown = '';
    for await (const chunk of response as AsyncIterable<Buffer>) {
      nowMs = performance.now();
      if (shown.length < ERROR_LETTERS) shown += chunk.toString('utf8');
      meter.see(chunk);
    }
    nowMs = performance.now();
    meter.end();
    answer.promptTokens = meter.promptTokens;
    if (meter.isCounted) answer.outputTokens = meter.outputTokens;
    else if (encoder !== undefined)
      answer.outputTokens = encoder.encode(said, { add_special_tokens: false }).ids.length;
    answer.cachedTokens = meter.cachedTokens;
    answer.unknownEnd = meter.unknownEnd;
    answer.error = faultOf(meter, status, streams, shown.slice(0, ERROR_LETTERS));
  } catch (cause) {
    options.signal?.throwIfAborted();
    answer.error =
      cause instanceof Error ? ((cause.cause as Error | undefined)?.message ?? cause.message) : String(cause);
  }
  return answer;
}

/** Why an answer does not count; '' for one that does. */
function faultOf(meter: AnswerMeter, status: number, streams: boolean, text: string): string {
  if (status >= 400) return `${status} ${text}`;
  if (meter.failure !== undefined) return meter.failure.message;
  if (!streams) return 'it answered without a stream, so when its tokens came is not known';
  if (meter.hasOddEvent) return 'each event of a stream must be an object';
  if (meter.outputTokens === 0) return 'the stream held no token';
  // an answer that was cut off does not count: its times cover half an answer
  return meter.isWhole ? '' : 'the stream broke off before [DONE]';
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
  const encoder = options.tokenizer === undefined ? undefined : loadTokenizer(options.tokenizer);
  const model = options.model ?? (await servedModel(options));
  const url = endpoint(options.target, 'completions');
  const reader = new TokenReader();
  const lines: ObservedLine[] = [];
  const pending: Promise<void>[] = [];
  let latestUs = 0;
  let uncounted = 0;
  let ended = 0;
  let firstUs: number | undefined;
  for (let i = 0; i < (options.warmUp ?? 0); i++) {
    const prompt = Array.from({ length: warmUpTokens }, (_, at) => (i * warmUpTokens + at) % vocabulary);
    await ask(url, bodyOf(model, prompt, warmUpTokens), options, encoder);
  }
  const startMs = performance.now();
  for (const request of requests) {
    if (pending.length === maxRequests) {
      throw configError(
        'requests',
        `leaves more than ${maxRequests} requests`,
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
      ask(url, body, options, encoder).then((answer) => {
        const since = (ms: number): number => Math.round(1000 * (ms - sentMs));
        const isWhole = answer.error === '';
        if (isWhole && answer.outputTokens < 0) uncounted++;
        lines.push({
          arrival_us: Math.round(1000 * (sentMs - startMs)),
          prompt_tokens: answer.promptTokens >= 0 ? answer.promptTokens : prompt.length,
          output_tokens: isWhole ? answer.outputTokens : Math.max(0, answer.outputTokens),
          ttft_us: isWhole ? since(answer.firstTokenMs) : -1,
          e2e_us: isWhole ? since(answer.lastTokenMs) : -1,
          cached_tokens: answer.cachedTokens,
          request_id: request.id,
          model,
          session: request.sessionId,
          outcome: isWhole ? 'completed' : 'failed',
          error: answer.error,
          ...(answer.unknownEnd === '' ? {} : { unknown_end: answer.unknownEnd }),
        });
        options.progress?.(++ended, pending.length);
      }),
    );
  }
  await Promise.all(pending);
  lines.sort((a, b) => a.arrival_us - b.arrival_us);
  if (lines.length > 0 && lines.every(({ outcome }) => outcome === 'failed')) {
    throw namedError(
      'TKV_INPUT',
      { field: 'target' },
      (name) =>
        `${options.target}: all ${lines.length} requests failed, the first with: ${shownPlain(lines[0].error)}. Mend what ` +
        `it says: ${name('vocabulary')} holds ids below the model’s, ${name('model')} names what is served, prompts fit ` +
        'its context',
    );
  }
  return { model, lines, latestUs, uncounted };
}
