/** From the bodies of the two completion calls to a request of the engine. */

import { randomInt } from 'node:crypto';
import type { EngineText, SamplingOptions } from '../engine/index.ts';
import type { ChatMessage, ChatTemplate } from '../engine/text/index.ts';
import { ApiError } from './apiError.ts';
import { Fields, show } from './fields.ts';
import type { Leg } from './handoffs.ts';

export interface Wanted {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  readonly stop: readonly string[];
  readonly ignoreEnd: boolean;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Of a request that two servers answer. */
  readonly leg: Leg;
  /** Answers to the prompt. */
  readonly count: number;
  /** Most likely tokens told beside each; absent: nothing is told. */
  readonly logprobs?: number;
}

export interface ModelText {
  readonly name: string;
  readonly tokenizer: EngineText;
  readonly template: ChatTemplate;
  readonly contextTokens: number;
  readonly vocabulary: number;
  /** Fields that ask for what the engine has not, and why. */
  readonly without: Readonly<Record<string, string>>;
  /** What `kv_transfer_params` asks for, where this server takes them. @throws {ApiError} */
  readonly legOf?: (value: unknown) => Leg;
}

/** Tokens of an answer when the request names no limit. */
const completionTokensDefault = 16;
const chatTokensDefault = 256;

/** Fields of other servers and of older versions of the API, with the values that ask for nothing. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  // penalties and samplers
  frequency_penalty: [0],
  presence_penalty: [0],
  repetition_penalty: [1],
  repeat_penalty: [1],
  length_penalty: [1],
  no_repeat_ngram_size: [0],
  min_p: [0],
  top_a: [0],
  typical_p: [1],
  tfs_z: [1],
  mirostat: [0],
  dynatemp_range: [0],
  xtc_probability: [0],
  dry_multiplier: [0],
  min_tokens: [0],
  best_of: [1],
  use_beam_search: [],
  bad_words: [],
  allowed_token_ids: [],
  logits_processors: [],
  custom_logit_processor: [''],
  // where an answer ends, and how its text is made
  stop_token_ids: [],
  stop_regex: [''],
  include_stop_str_in_output: [],
  no_stop_trim: [],
  skip_special_tokens: [true],
  spaces_between_special_tokens: [true],
  // another form of the answer
  structured_outputs: [],
  guided_json: [''],
  guided_regex: [''],
  guided_choice: [],
  guided_grammar: [''],
  grammar: [''],
  json_schema: [''],
  regex: [''],
  ebnf: [''],
  prompt_logprobs: [],
  n_probs: [0],
  return_tokens_as_token_ids: [],
  return_token_ids: [],
  return_hidden_states: [],
  echo: [],
  // how it is served
  priority: [0],
  service_tier: ['auto', 'default'],
  store: [],
  cache_salt: [''],
  cache_prompt: [true],
  vllm_xargs: [],
  truncate_prompt_tokens: [],
  lora_path: [''],
  watermark: [],
};
const neutralCompletionValues: Readonly<Record<string, readonly unknown[]>> = {
  suffix: [''],
  add_special_tokens: [true],
};
const neutralChatValues: Readonly<Record<string, readonly unknown[]>> = {
  tools: [],
  tool_choice: ['none', 'auto'],
  functions: [],
  function_call: ['none', 'auto'],
  audio: [],
  prediction: [],
  web_search_options: [],
  reasoning_effort: ['none'],
  verbosity: ['medium'],
  chat_template: [''],
  chat_template_kwargs: [],
  mm_processor_kwargs: [],
  media_io_kwargs: [],
  documents: [],
  add_generation_prompt: [true],
  continue_final_message: [],
  add_special_tokens: [],
};
/** These change no answer: they name the user or the request, and what is cached follows from the tokens. */
const withoutEffect = [
  'user',
  'metadata',
  'parallel_tool_calls',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'request_id',
  'guided_decoding_backend',
  'include_reasoning',
  'separate_reasoning',
  'stream_reasoning',
] as const;

function refuseAll(fields: Fields, neutral: Readonly<Record<string, readonly unknown[]>>): void {
  for (const [name, values] of Object.entries(neutral)) {
    const value = fields.get(name);
    if (value === false && values.includes(true)) {
      const message = `${name} is false, which is not supported by this server. Leave it out, or give true.`;
      throw fields.error(name, message, 'unsupported_parameter');
    }
    fields.refuse(name, ...values);
  }
}

export function completionRequest(body: unknown, model: ModelText): Wanted {
  const fields = new Fields(body);
  requireModel(fields, model);
  refuseAll(fields, neutralCompletionValues);
  const prompt = promptTokens(fields, model);
  if (isPrefillLeg(fields)) fields.ignore('max_completion_tokens'); // proxies set both
  const left = Math.max(1, model.contextTokens - prompt.length);
  const otherwise = Math.min(completionTokensDefault, left);
  const most = fields.integer('max_tokens', otherwise, 1, model.contextTokens);
  const isAsked = (fields.get('logprobs') ?? false) !== false;
  const logprobs = isAsked ? fields.integer('logprobs', 0, 0, LOGPROBS_MOST) : undefined;
  return wanted(fields, model, prompt, most, logprobs);
}

/** Most likely tokens that may be asked for beside each. */
const LOGPROBS_MOST = 20;

/** `logprobs: true`, with `top_logprobs` beside it. */
function chatLogprobs(fields: Fields): number | undefined {
  const top = fields.integer('top_logprobs', 0, 0, LOGPROBS_MOST);
  if (fields.boolean('logprobs')) return top;
  if (top === 0) return undefined;
  throw fields.error('top_logprobs', 'top_logprobs is only for logprobs: true. Leave it out.');
}

export function chatRequest(body: unknown, model: ModelText): Wanted {
  const fields = new Fields(body);
  requireModel(fields, model);
  refuseAll(fields, neutralChatValues);
  if (!isTextOnly(fields.get('modalities'))) fields.refuse('modalities');
  const messages = messagesOf(fields, model);
  const text = model.template.render(messages);
  requireFits(fields, 'messages', text, model);
  const prompt = model.tokenizer.encode(text, false);
  const left = Math.max(1, model.contextTokens - prompt.length);
  const otherwise = Math.min(chatTokensDefault, left);
  const old = fields.integer('max_tokens', otherwise, 1, model.contextTokens);
  const most = fields.integer('max_completion_tokens', old, 1, model.contextTokens);
  return wanted(fields, model, prompt, most, chatLogprobs(fields));
}

function isTextOnly(value: unknown): boolean {
  return Array.isArray(value) && value.length === 1 && value[0] === 'text';
}

function wanted(
  fields: Fields,
  model: ModelText,
  prompt: readonly number[],
  maxTokens: number,
  logprobs: number | undefined,
): Wanted {
  const stream = fields.boolean('stream');
  const streaming = fields.object('stream_options');
  const includeUsage = streaming?.boolean('include_usage') ?? false;
  streaming?.ignore('include_obfuscation');
  streaming?.refuse('continuous_usage_stats');
  streaming?.requireKnown();
  if (streaming !== undefined && !stream) {
    throw fields.error('stream_options', 'stream_options is only for stream: true. Leave it out.');
  }
  const count = fields.integer('n', 1, 1, 128);
  if (!isTextFormat(fields.get('response_format'))) fields.refuse('response_format');
  requireNoBias(fields);
  for (const [name, why] of Object.entries(model.without)) {
    if ((fields.get(name) ?? false) === false) continue;
    throw fields.error(name, `${name} is asked for, and ${why}. Leave it out.`, 'unsupported_parameter');
  }
  const leg = legOf(fields, model);
  if (leg === 'prefill' && stream) {
    throw fields.error('stream', 'stream is true, and a prefill leg has one answer. Leave it out.');
  }
  if (leg === 'prefill' && fields.get('min_tokens') === 1)
    refuseAll(fields, { ...neutralValues, min_tokens: [1] });
  else refuseAll(fields, neutralValues);
  fields.ignore(...withoutEffect);
  const topK = fields.integer('top_k', 0, -1, Number.MAX_SAFE_INTEGER);
  const result = {
    prompt,
    maxTokens: leg === 'prefill' ? 1 : maxTokens,
    leg,
    sampling: {
      temperature: fields.number('temperature', 1, 0, 2),
      topP: fields.number('top_p', 1, 0, 1),
      topK: topK === -1 ? 0 : Math.min(topK, model.vocabulary),
      seed: fields.seed(randomInt(2 ** 47)),
    },
    stop: fields.stops(),
    ignoreEnd: fields.boolean('ignore_eos'),
    stream,
    includeUsage,
    // A prefill leg has one token for all answers, which proxies drop.
    count: leg === 'prefill' ? 1 : count,
    ...(logprobs === undefined || leg === 'prefill' ? {} : { logprobs }),
  };
  fields.requireKnown();
  if (prompt.length + maxTokens > model.contextTokens) {
    const message =
      `This model's context has ${model.contextTokens} tokens. The prompt has ${prompt.length}, and ` +
      `${maxTokens} are asked for. Shorten the prompt, or lower max_tokens.`;
    throw fields.error('prompt', message, 'context_length_exceeded');
  }
  return result;
}

/** Proxies have one token of a prefill leg generated, and drop it. */
function legOf(fields: Fields, model: ModelText): Leg {
  if (model.legOf !== undefined) return model.legOf(fields.get('kv_transfer_params'));
  fields.refuse('kv_transfer_params');
  return 'whole';
}

function isPrefillLeg(fields: Fields): boolean {
  const params = fields.get('kv_transfer_params');
  return typeof params === 'object' && (params as Record<string, unknown>).do_remote_decode === true;
}

/** `{ type: 'text' }` is what this server gives anyway. */
function isTextFormat(value: unknown): boolean {
  if (typeof value !== 'object') return false;
  const entries = Object.entries(value as object);
  return entries.length === 1 && entries[0].join() === 'type,text';
}

/** A bias of 0 changes nothing. */
function requireNoBias(fields: Fields): void {
  const bias = fields.get('logit_bias');
  const isNone = typeof bias === 'object' && Object.values(bias as object).every((each) => each === 0);
  if (!isNone) fields.refuse('logit_bias');
}

export function requireModel(fields: Fields, model: ModelText): void {
  const name = fields.string('model');
  if (name !== model.name) throw noSuchModel(name, model.name);
}

export function noSuchModel(name: string, model: string): ApiError {
  const message = `The model ${name} is not here. This server has ${model}.`;
  return new ApiError(404, message, 'model', 'model_not_found');
}

/** A text, token ids, or a list with one of them. */
function promptTokens(fields: Fields, model: ModelText): number[] {
  let prompt = fields.get('prompt');
  if (Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number') [prompt] = prompt;
  if (typeof prompt === 'string') {
    requireFits(fields, 'prompt', prompt, model);
    const tokens = model.tokenizer.encode(prompt, true);
    if (tokens.length > 0) return tokens;
    throw fields.error('prompt', 'prompt is empty. Give a text.');
  }
  const isToken = (id: unknown): id is number =>
    Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < model.vocabulary;
  if (Array.isArray(prompt) && prompt.length > 0 && prompt.every(isToken)) return prompt;
  const what = `a text, or a list of token ids from 0 to ${model.vocabulary - 1}`;
  throw fields.error('prompt', `prompt must be one prompt: ${what}.`);
}

const roles: readonly string[] = ['system', 'developer', 'user', 'assistant', 'tool'];

/** What the official client has in a turn that it gives back, beside role and content. */
const neutralInMessages: readonly string[] = [
  'name',
  'refusal',
  'audio',
  'annotations',
  'function_call',
  'tool_calls',
  'tool_call_id',
  'reasoning',
  'reasoning_content',
  'prefix',
  'cache_control',
];
const neutralInParts: readonly string[] = ['cache_control', 'annotations'];

function messagesOf(fields: Fields, model: ModelText): ChatMessage[] {
  const list = fields.get('messages');
  if (!Array.isArray(list) || list.length === 0) {
    throw fields.error('messages', 'messages must be a list of one message or more.');
  }
  if (list.length > model.contextTokens) {
    const message = `There are ${list.length} messages, and the context has ${model.contextTokens} tokens.`;
    throw fields.error('messages', `${message} Leave out the oldest.`, 'context_length_exceeded');
  }
  return list.map((each: unknown, i) => {
    const at = `messages[${i}]`;
    if (typeof each !== 'object' || each === null || Array.isArray(each)) {
      throw fields.error(at, `${at} is ${show(each)}. Give an object with role and content.`);
    }
    const message = new Fields(each, `${at}.`);
    const role = message.get('role');
    if (typeof role !== 'string') throw fields.error(`${at}.role`, `${at} has no role. Give it one.`);
    if (!roles.includes(role)) {
      throw fields.error(
        `${at}.role`,
        `${at} has the role ${role.slice(0, 60)}. Give one of ${roles.join(', ')}.`,
      );
    }
    for (const name of neutralInMessages) message.refuse(name, '');
    const content = contentOf(fields, message.get('content'), at);
    message.requireKnown();
    return { role, content };
  });
}

/** A text, or parts that are all texts: one a line, as vLLM gives them to a template. */
function contentOf(fields: Fields, content: unknown, at: string): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) {
    throw fields.error(`${at}.content`, `${at}.content must be a text. This server reads text only.`);
  }
  return content.map((each: unknown, i) => textOfPart(fields, each, at, i)).join('\n');
}

function textOfPart(fields: Fields, each: unknown, at: string, i: number): string {
  const path = `${at}.content[${i}]`;
  const { type, text } = (typeof each === 'object' && each !== null ? each : {}) as Record<string, unknown>;
  if (type !== 'text' || typeof text !== 'string') {
    const problem = type === 'text' ? `${path} has no text` : `${path} is of the type ${show(type ?? each)}`;
    throw fields.error(
      `${at}.content`,
      `${problem}, and this server reads text only. Give { type: "text", text }.`,
    );
  }
  const part = new Fields(each, `${path}.`);
  part.ignore('type', 'text');
  for (const name of neutralInParts) part.refuse(name, '');
  part.requireKnown();
  return text;
}

/**
 * Tokens stand for some four characters each; a text in which they stand for more than this fits no context.
 */
const charactersOfTokenMax = 64;

/** A text that is far too long is refused before a tokenizer goes through it. */
export function requireFits(fields: Fields, name: string, text: string, model: ModelText): void {
  const most = model.contextTokens * charactersOfTokenMax;
  if (text.length <= most) return;
  const message = `${name} has ${text.length} characters, and the context has ${model.contextTokens} tokens.`;
  throw fields.error(name, `${message} Shorten it.`, 'context_length_exceeded');
}
