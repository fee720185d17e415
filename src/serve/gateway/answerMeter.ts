/**
 * Answers of OpenAI's and Anthropic's API, in all the forms in which servers write them: whether one is whole, cut or a failure,
 * how many tokens it has, and when they came. The gateway and `tierkv observe` both read answers by this file alone.
 *
 *     a failure                                              said by
 *     {"error": {...}}, {"error": "text", "error_type": ..}  vLLM, SGLang, llama.cpp, Ollama; TGI; also behind a part of an answer
 *     {"object": "error", "code": 400, ...}                  TensorRT-LLM, LMDeploy, vLLM before 0.11
 *     {"text": "...", "error_code": 50001}                   FastChat
 *     error: {...} as a line of a stream, event: error       llama.cpp before the end of 2025; Anthropic's API
 *     "finish_reason": abort, error, cancelled, timeout      vLLM, SGLang, LMDeploy, TensorRT-LLM, at the end of a choice
 *     "finish_reason": {"type": "abort"}                     SGLang
 *     {"type": "response.failed"}, "status": "failed"        the Responses API
 *
 * A stream is whole where `[DONE]` or `message_stop` has come, or the reasons for which all its choices ended. Servers write JSON with spaces or
 * without, and some give a reason in each event. A reason that is neither a failure nor a known end is told: whether the answer
 * is what was asked for is not known.
 */

import { statusOfErrorType } from './apis.ts';

/** Bytes of an answer that does not stream that are looked at. */
const WHOLE_BYTES_MOST = 2 ** 21;
/** Bytes of one line of a stream that are looked at. */
const LINE_BYTES_MOST = 2 ** 18;

/** A failure that a server reports. */
interface SaidFailure {
  readonly message: string;
  /** The HTTP status that would say it; 500 where the server does not say. */
  readonly status: number;
}

/** Reasons for which a choice ended that are no end of an answer. */
const failedReasons =
  /^(abort(ed)?|error.*|fail(ed|ure)?|cancel(l?ed)?|timeout|timed_out|insufficient_system_resource|preempted)$/i;

/** Reasons for which an answer is at its end, of OpenAI's API, the servers named above, Anthropic's, Gemini's, Mistral's and Cohere's. */
const knownEnds =
  /^(stop|length|tool_?calls?|function_call|content_filter|eos(_token)?|stop_(sequence|words?|token)|end_(turn|id)|max_tokens|model_length|model_context_window_exceeded|tool_use|pause_turn|refusal|repetition|safety|recitation|complete)$/i;
/** Letters of an id, and where a stream has it: in its first event, of Anthropic's API in the message there. */
const ID_LETTERS = 256;
const firstId = /"id"\s*:\s*"([^"\\]{1,256})"/;
/** Letters of a reason that are told. */
const REASON_LETTERS = 40;

/** An event that has more to say than a token: those of Anthropic's API are known by their type. */
const saysMore =
  /"type"\s*:\s*"(message|content_block_st|ping|signature|citations)|"role"|"error|"usage"\s*:\s*\{|"choices"\s*:\s*\[\s*\]|"(text|content)"\s*:\s*(""|null)|"failed"|"response\.failed"|"finish_reason"\s*:\s*["{]/;

export class AnswerMeter {
  readonly #streams: boolean;
  readonly #token: (isFirst: boolean) => void;
  readonly #said: ((text: string) => void) | undefined;
  /** Choices of the answer that must end, and which have. */
  readonly #choices: number;
  readonly #ended = new Set<unknown>();
  #hasDone = false;
  #hasOdd = false;
  #hasChoices = false;
  #line = '';
  #skips = false;
  #isErrorEvent = false;
  /** Null for an answer that is too long to be looked at. */
  #whole: Buffer[] | null = [];
  #wholeBytes = 0;
  #events = 0;
  /** Tokens by the server's count, -1 before it says them. */
  #usage = { completion: -1, prompt: -1, cached: -1 };
  /** Tokens of the prompt as Anthropic's API counts them, by name: an event may say some of them alone. */
  #input: Readonly<Record<string, number>> = {};
  #failure: SaidFailure | undefined;
  #id = '';
  #hasData = false;
  #unknownEnd = '';

  /**
   * @param choices that were asked for
   * @param token is called at each event of a stream that has a token or some; when those of another answer came is not known
   * @param said is called with each piece of the answer's text; without it most events of a stream need not be parsed
   */
  constructor(
    streams: boolean,
    choices: number = 1,
    token: (isFirst: boolean) => void = () => {},
    said?: (text: string) => void,
  ) {
    this.#said = said;
    this.#streams = streams;
    this.#choices = choices;
    this.#token = token;
  }

  /** The id of the answer; '' where it has none. */
  get id(): string {
    return this.#id;
  }

  /** A reason for which the answer ended that is not known; '' for none. */
  get unknownEnd(): string {
    return this.#unknownEnd;
  }

  /**
   * The error that the server reports, in the place of an answer or behind a part of one; undefined without an error.
   */
  get failure(): SaidFailure | undefined {
    return this.#failure;
  }

  /** Whether all of an answer is there: of one that does not stream, whether it is an answer. */
  get isWhole(): boolean {
    if (!this.#streams) return this.#hasChoices || this.#whole === null;
    return !this.#hasOdd && (this.#hasDone || this.#ended.size >= this.#choices);
  }

  /** Whether an event of a stream is not an object, as none of this API is. */
  get hasOddEvent(): boolean {
    return this.#hasOdd;
  }

  /** Whether the server counted the tokens of its answer. */
  get isCounted(): boolean {
    return this.#usage.completion >= 0;
  }

  /** Output tokens by the server's count; without one, the events that held text. */
  get outputTokens(): number {
    return this.#usage.completion >= 0 ? this.#usage.completion : this.#events;
  }

  /** Tokens of the prompt by the server's count, -1 where it did not say. */
  get promptTokens(): number {
    return this.#usage.prompt;
  }

  /** Tokens of the prompt that the server found cached, -1 where it did not say. */
  get cachedTokens(): number {
    return this.#usage.cached;
  }

  see(chunk: Buffer): void {
    if (!this.#streams) {
      this.#wholeBytes += chunk.length;
      if (this.#wholeBytes > WHOLE_BYTES_MOST) this.#whole = null;
      this.#whole?.push(chunk);
      return;
    }
    const text = this.#line + chunk.toString('latin1');
    let from = 0;
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n', from)) {
      if (!this.#skips) this.#event(text.slice(from, end));
      this.#skips = false;
      from = end + 1;
    }
    this.#line = text.slice(from);
    if (this.#line.length > LINE_BYTES_MOST) {
      this.#line = '';
      this.#skips = true;
    }
  }

  /** The answer has ended. */
  end(): void {
    if (this.#streams) {
      if (!this.#skips) this.#event(this.#line); // the last line may have no end
      this.#line = '';
      return;
    }
    if (this.#whole === null) return;
    this.#take(Buffer.concat(this.#whole).toString('utf8'));
    this.#whole = [];
  }

  #event(line: string): void {
    if (line.startsWith('event:')) {
      this.#isErrorEvent = line.slice(6).trim() === 'error';
      return;
    }
    if (line.startsWith('error:')) {
      this.#failed(jsonOf(line.slice(6)) ?? line.slice(6));
      return;
    }
    if (!line.startsWith('data:')) {
      if (line.trim() === '') this.#isErrorEvent = false;
      return;
    }
    if (this.#isErrorEvent) {
      const said = jsonOf(line.slice(5)) as { readonly error?: unknown } | undefined;
      this.#failed(said?.error ?? said ?? line.slice(5));
      return;
    }
    if (line.includes('[DONE]', 5) && line.slice(5).trim() === '[DONE]') {
      this.#hasDone = true;
      return;
    }
    const data = line.slice(5).trim();
    if (data === '') return;
    if (!data.startsWith('{')) {
      this.#hasOdd = true;
      return;
    }
    if (!this.#hasData) {
      this.#hasData = true;
      this.#id = firstId.exec(line)?.[1] ?? '';
    }
    const isPlain = this.#said === undefined && !saysMore.test(line);
    if (isPlain || this.#take(line.slice(5))) this.#token(this.#events++ === 0);
  }

  /** @returns whether it has something of an answer */
  #take(json: string): boolean {
    const body = jsonOf(json) as AnswerBody | undefined;
    if (typeof body !== 'object' || body === null) return false;
    const { choices, error, object, type, status, response } = body;
    if (!this.#streams && typeof body.id === 'string') this.#id = body.id.slice(0, ID_LETTERS);
    const said = Array.isArray(choices) ? (choices as unknown[]) : [];
    const { content, stop_reason: reason, delta } = body;
    if (said.length > 0 || (type === 'message' && Array.isArray(content))) this.#hasChoices = true;
    if (type === 'message_stop') this.#hasDone = true;
    this.#reason(reason ?? delta?.stop_reason, 0);
    const isFailed = status === 'failed' || response?.status === 'failed' || type === 'response.failed';
    if (isSaid(error)) this.#failed(error);
    else if (object === 'error' || type === 'error' || isFailed) this.#failed(body);
    else if (typeof body.error_code === 'number' && body.error_code !== 0) this.#failed(body);
    for (const [i, choice] of said.entries()) this.#choice(choice, i);
    if (this.#said !== undefined) for (const choice of said) this.#said(textOf(choice));
    this.#count(body.usage ?? body.message?.usage ?? response?.usage, type === 'message_start');
    return said.some(hasContent) || (type === 'content_block_delta' && !tokenlessDeltas.has(delta?.type));
  }

  #choice(choice: unknown, at: number): void {
    if (typeof choice !== 'object' || choice === null) return;
    const { index, finish_reason: reason } = choice as { index?: unknown; finish_reason?: unknown };
    this.#reason(reason, index ?? at);
  }

  /** The reason for which a choice ended, where there is one. */
  #reason(reason: unknown, choice: unknown): void {
    const named =
      typeof reason === 'object' && reason !== null ? (reason as { type?: unknown }).type : reason;
    if (typeof named !== 'string' || named === '') return;
    this.#ended.add(choice);
    const shown = named.slice(0, REASON_LETTERS);
    if (failedReasons.test(named)) this.#failed(`the answer ended with the reason ${shown}`);
    else if (!knownEnds.test(named)) this.#unknownEnd ||= shown;
  }

  #failed(error: unknown): void {
    this.#failure ??= { message: messageIn(error), status: statusIn(error) };
  }

  /** Counts by the names of both vendors. Anthropic counts what it found apart, and says each number in an event of its own. */
  #count(usage: Readonly<Record<string, unknown>> | null | undefined, isStart: boolean): void {
    if (typeof usage !== 'object' || usage === null) return;
    const isCount = (value: unknown): value is number =>
      Number.isSafeInteger(value) && (value as number) >= 0;
    const count = (values: readonly unknown[], otherwise: number): number =>
      values.find(isCount) ?? otherwise;
    const details = (usage.prompt_tokens_details ?? usage.input_tokens_details) as
      | { cached_tokens?: unknown }
      | null
      | undefined;
    const said = inputCounts.flatMap((name) => (isCount(usage[name]) ? [[name, usage[name]] as const] : []));
    this.#input = { ...this.#input, ...Object.fromEntries(said) };
    const { input_tokens: unfound, cache_read_input_tokens: read } = this.#input;
    const input =
      unfound === undefined
        ? undefined
        : inputCounts.reduce((sum, name) => sum + (this.#input[name] ?? 0), 0);
    const { completion, prompt, cached } = this.#usage;
    // the output of a message that begins is not its count
    const output = isStart ? [] : [usage.completion_tokens, usage.output_tokens];
    this.#usage = {
      completion: count(output, completion),
      prompt: count([usage.prompt_tokens, input], prompt),
      cached: count([details?.cached_tokens, read], cached),
    };
  }
}

/** Counts of a prompt in Anthropic's API, which add up to it. */
const inputCounts = ['input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'] as const;
/** Deltas of blocks that are no token of the answer. */
const tokenlessDeltas: ReadonlySet<unknown> = new Set(['signature_delta', 'citations_delta']);

/** The parts of an answer, or of an event of one, that are looked at. */
interface AnswerBody {
  /** Members of Anthropic's API: the blocks of a message, why it ended, and what an event adds to it. */
  readonly content?: unknown;
  readonly stop_reason?: unknown;
  readonly delta?: { readonly type?: unknown; readonly stop_reason?: unknown } | null;
  readonly id?: unknown;
  readonly usage?: Readonly<Record<string, unknown>> | null;
  readonly choices?: unknown;
  readonly error?: unknown;
  readonly error_code?: unknown;
  readonly object?: unknown;
  readonly type?: unknown;
  readonly status?: unknown;
  readonly response?: {
    readonly status?: unknown;
    readonly usage?: Readonly<Record<string, unknown>> | null;
  } | null;
  /** The message of Anthropic's first event. */
  readonly message?: { readonly usage?: Readonly<Record<string, unknown>> | null } | null;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a field that tells of an error tells of one: servers also write it empty. */
function isSaid(error: unknown): boolean {
  return error !== undefined && error !== null && error !== false && error !== '';
}

/** The text of a choice, in UTF-8: events are split as bytes. */
function textOf(choice: unknown): string {
  const { delta, text } = (choice ?? {}) as {
    readonly delta?: { readonly content?: unknown };
    readonly text?: unknown;
  };
  const said = text ?? delta?.content;
  return typeof said === 'string' ? Buffer.from(said, 'latin1').toString('utf8') : '';
}

/** Whether a choice has more than the role of who speaks. */
function hasContent(choice: unknown): boolean {
  if (typeof choice !== 'object' || choice === null) return false;
  const { delta, text } = choice as { readonly delta?: unknown; readonly text?: unknown };
  if (typeof delta !== 'object' || delta === null) return text !== '' && text !== null;
  const isEmpty = (value: unknown): boolean => value === null || value === undefined || value === '';
  return Object.entries(delta).some(([name, value]) => name !== 'role' && !isEmpty(value));
}

function messageIn(error: unknown): string {
  if (typeof error === 'string') return error.trim().slice(0, 400) || 'an error without a message';
  const { message, text, error: inner } = (error ?? {}) as Record<string, unknown>;
  for (const said of [message, text, inner]) {
    if (typeof said === 'string' && said !== '') return said.slice(0, 400);
    if (typeof said === 'object' && said !== null) return messageIn(said);
  }
  return 'an error without a message';
}

/** Statuses are numbers, or texts of them; FastChat's have two digits more. Anthropic's API names the type alone. */
function statusIn(error: unknown): number {
  const {
    code,
    status,
    status_code: statusCode,
    error_code: errorCode,
    type,
  } = (error ?? {}) as Record<string, unknown>;
  for (const said of [status, statusCode, code, errorCode]) {
    const value = Number(said);
    if (value >= 400 && value < 600) return value;
    if (value >= 40_000 && value < 60_000) return Math.floor(value / 100);
  }
  return statusOfErrorType(type) ?? 500;
}
