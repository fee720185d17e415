/** From the bodies of the two completion calls to a request of the engine. */

import { randomInt } from 'node:crypto';
import type { SamplingOptions } from '../engine/index.ts';
import type { ChatMessage, ChatTemplate, TextTokenizer } from '../engine/text/index.ts';
import { ApiError } from './apiError.ts';
import { Fields } from './fields.ts';

export interface Wanted {
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  readonly sampling: SamplingOptions;
  readonly stop: readonly string[];
  readonly ignoreEnd: boolean;
  readonly stream: boolean;
  readonly includeUsage: boolean;
}

export interface ModelText {
  readonly name: string;
  readonly tokenizer: TextTokenizer;
  readonly template: ChatTemplate;
  readonly contextTokens: number;
  readonly vocabulary: number;
}

/** Tokens of an answer when the request names no limit. */
const completionTokensDefault = 16;
const chatTokensDefault = 256;

export function completionRequest(body: unknown, model: ModelText): Wanted {
  const fields = new Fields(body);
  requireModel(fields, model);
  const prompt = promptTokens(fields, model);
  fields.refuse('echo');
  fields.refuse('suffix', '');
  fields.refuse('best_of', 1);
  fields.refuse('logprobs', 0);
  const most = fields.integer('max_tokens', completionTokensDefault, 1, model.contextTokens);
  return wanted(fields, model, prompt, most);
}

export function chatRequest(body: unknown, model: ModelText): Wanted {
  const fields = new Fields(body);
  requireModel(fields, model);
  const text = model.template.render(messagesOf(fields));
  const prompt = model.tokenizer.encode(text, false);
  for (const name of ['tools', 'functions', 'logprobs', 'audio', 'prediction', 'web_search_options']) {
    fields.refuse(name);
  }
  fields.refuse('reasoning_effort', 'none');
  fields.refuse('verbosity', 'medium');
  if (JSON.stringify(fields.get('modalities')) !== '["text"]') fields.refuse('modalities');
  fields.refuse('tool_choice', 'none', 'auto');
  fields.refuse('top_logprobs', 0);
  if (fields.object('response_format')?.get('type') !== 'text') fields.refuse('response_format');
  const left = Math.max(1, model.contextTokens - prompt.length);
  const otherwise = Math.min(chatTokensDefault, left);
  const old = fields.integer('max_tokens', otherwise, 1, model.contextTokens);
  const most = fields.integer('max_completion_tokens', old, 1, model.contextTokens);
  return wanted(fields, model, prompt, most);
}

function wanted(fields: Fields, model: ModelText, prompt: readonly number[], maxTokens: number): Wanted {
  const stream = fields.boolean('stream');
  const streaming = fields.object('stream_options');
  const includeUsage = streaming?.boolean('include_usage') ?? false;
  streaming?.ignore('include_obfuscation');
  streaming?.requireKnown('stream_options.');
  if (streaming !== undefined && !stream) {
    throw fields.error('stream_options', 'stream_options is only for stream: true. Leave it out.');
  }
  if (fields.integer('n', 1, 1, 128) !== 1) {
    throw fields.error('n', 'n is above 1, which this server does not support. Send several requests.');
  }
  fields.refuse('logit_bias');
  fields.refuse('frequency_penalty', 0);
  fields.refuse('presence_penalty', 0);
  fields.ignore('user', 'metadata', 'store', 'service_tier', 'parallel_tool_calls', 'safety_identifier');
  fields.ignore('prompt_cache_key', 'prompt_cache_retention'); // what is cached here follows from the tokens
  const result = {
    prompt,
    maxTokens,
    sampling: {
      temperature: fields.number('temperature', 1, 0, 2),
      topP: fields.number('top_p', 1, 0, 1),
      topK: fields.integer('top_k', 0, 0, model.vocabulary),
      seed: fields.integer('seed', randomInt(2 ** 47), -(2 ** 47), 2 ** 47),
    },
    stop: fields.stops(),
    ignoreEnd: fields.boolean('ignore_eos'),
    stream,
    includeUsage,
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

function requireModel(fields: Fields, model: ModelText): void {
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
    const tokens = model.tokenizer.encode(prompt, true);
    if (tokens.length > 0) return tokens;
    throw fields.error('prompt', 'prompt is empty. Give a text.');
  }
  const isToken = (id: unknown): id is number =>
    Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < model.vocabulary;
  if (Array.isArray(prompt) && prompt.length > 0 && prompt.every(isToken)) return prompt;
  const what = `a text, or a list of token ids from 0 to ${model.vocabulary - 1}`;
  throw fields.error('prompt', `prompt is none that this server takes. Give one prompt: ${what}.`);
}

const roles: readonly string[] = ['system', 'developer', 'user', 'assistant', 'tool'];

function messagesOf(fields: Fields): ChatMessage[] {
  const list = fields.get('messages');
  if (!Array.isArray(list) || list.length === 0) {
    throw fields.error('messages', 'messages is no list of messages. Give one message or more.');
  }
  return list.map((each: unknown, i) => {
    const at = `messages[${i}]`;
    const { role, content } = (each ?? {}) as Record<string, unknown>;
    if (typeof role !== 'string') throw fields.error(`${at}.role`, `${at} has no role. Give it one.`);
    if (!roles.includes(role)) {
      throw fields.error(`${at}.role`, `${at} has the role ${role}. Give one of ${roles.join(', ')}.`);
    }
    return { role, content: contentOf(fields, content, at) };
  });
}

/** A text, or parts that are all texts. */
function contentOf(fields: Fields, content: unknown, at: string): string {
  if (typeof content === 'string') return content;
  if (Array.isArray(content)) {
    const texts = content.map((part: unknown) => ((part ?? {}) as Record<string, unknown>).text);
    if (texts.every((text): text is string => typeof text === 'string')) return texts.join('');
  }
  throw fields.error(`${at}.content`, `${at}.content is no text. This server reads text only.`);
}
