/**
 * From the body of Anthropic's `/v1/messages` to a request of the engine. Its blocks become the messages that the model's
 * template reads: calls of tools are calls, and results of tools are messages of the role `tool`.
 */

import { randomInt } from 'node:crypto';
import type { ChatMessage, TemplateCall, TemplateTool } from '../engine/text/index.ts';
import type { ApiError } from './apiError.ts';
import { Fields, show } from './fields.ts';
import { type ModelText, requireFits, requireModel, type Wanted } from './requestBodies.ts';

export interface WantedMessage extends Wanted {
  /** Tools that the model may call. */
  readonly toolNames: readonly string[];
  /** Fewer tokens are left in the context than were asked for. */
  readonly isCutByContext: boolean;
  /** Whether the client asks why a cache was missed. */
  readonly asksForMiss: boolean;
}

/** What acts at the vendor's servers and is not here, with the values that ask for nothing. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  container: [],
  context_management: [],
  inference_geo: [''],
  mcp_servers: [],
  output_config: [],
  output_format: [],
};
/**
 * These change no answer here: they name the user, choose a plan of the vendor, or allow a model to think, which a model does as
 * its template has it.
 */
const withoutEffect = ['metadata', 'service_tier', 'cache_control', 'thinking', 'betas', 'speed'] as const;

/** Fields of blocks that say how the vendor's cache keeps them. Ours keeps all blocks, and the oldest ones go first. */
const withoutEffectInBlocks = ['cache_control', 'citations'] as const;

/** The prompt of a request. */
interface Prompt {
  readonly tokens: readonly number[];
  readonly toolNames: readonly string[];
}

/** Tokens of a prompt that is counted alone. @throws {ApiError} */
export function countedTokens(body: unknown, model: ModelText): number {
  const fields = new Fields(body);
  const { tokens } = promptOf(fields, model);
  fields.requireKnown();
  return tokens.length;
}

/** @throws {ApiError} */
export function messageRequest(body: unknown, model: ModelText): WantedMessage {
  const fields = new Fields(body);
  const { tokens, toolNames } = promptOf(fields, model);
  if (fields.get('max_tokens') === undefined)
    throw fields.error('max_tokens', 'max_tokens is missing. Give an integer.');
  const asked = fields.integer('max_tokens', 1, 1, Number.MAX_SAFE_INTEGER);
  const left = model.contextTokens - tokens.length;
  if (left < 1) {
    const message = `prompt is too long: ${tokens.length} tokens, and this model's context has ${model.contextTokens}`;
    throw fields.error('messages', `${message}. Shorten it.`, 'context_length_exceeded');
  }
  const temperature = fields.number('temperature', 1, 0, 1);
  const topK = fields.integer('top_k', 0, 0, Number.MAX_SAFE_INTEGER);
  const wanted: WantedMessage = {
    prompt: tokens,
    toolNames,
    maxTokens: Math.min(asked, left),
    isCutByContext: asked > left,
    asksForMiss: (fields.get('diagnostics') ?? null) !== null,
    sampling: {
      temperature,
      topP: fields.number('top_p', 1, 0, 1),
      topK: Math.min(topK, model.vocabulary),
      seed: randomInt(2 ** 47),
    },
    stop: fields.stops('stop_sequences'),
    ignoreEnd: false,
    stream: fields.boolean('stream'),
    includeUsage: true,
    leg: 'whole',
    count: 1,
  };
  fields.requireKnown();
  return wanted;
}

function promptOf(fields: Fields, model: ModelText): Prompt {
  requireModel(fields, model);
  for (const [name, values] of Object.entries(neutralValues)) fields.refuse(name, ...values);
  fields.ignore(...withoutEffect);
  const tools = toolsOf(fields, model);
  const messages = [...systemOf(fields), ...messagesOf(fields, model)];
  const text = model.template.render(messages, tools);
  requireFits(fields, 'messages', text, model);
  return {
    tokens: model.tokenizer.encode(text, false),
    toolNames: tools.map((tool) => tool.function.name),
  };
}

/** The tools that the model is told of: an empty list where the choice is `none`. */
function toolsOf(fields: Fields, model: ModelText): TemplateTool[] {
  const list = fields.get('tools') ?? [];
  if (!Array.isArray(list)) throw fields.error('tools', `tools is ${show(list)}. Give a list of tools.`);
  const choice = fields.object('tool_choice');
  const type = choice?.get('type') ?? 'auto';
  choice?.ignore('disable_parallel_tool_use');
  choice?.requireKnown();
  if (type !== 'auto' && type !== 'none') {
    const message = `tool_choice.type is ${show(type)}, and this server forces no call. Give auto or none.`;
    throw fields.error('tool_choice', message, 'unsupported_parameter');
  }
  if (list.length === 0) return [];
  if (!model.template.takesTools) {
    const message =
      "tools are given, and this model's chat template has none, or writes calls in another form than " +
      '<tool_call>{"name", "arguments"}</tool_call>. Leave them out, or serve a model that has them.';
    throw fields.error('tools', message, 'unsupported_parameter');
  }
  const tools = list.map((each: unknown, i) => toolOf(fields, each, `tools[${i}]`));
  return type === 'none' ? [] : tools;
}

function toolOf(fields: Fields, each: unknown, at: string): TemplateTool {
  const tool = blockFields(fields, each, at);
  const type = tool.get('type') ?? 'custom';
  if (type !== 'custom') {
    const message = `${at} is of the type ${show(type)}, which runs at the vendor's servers. Leave it out.`;
    throw fields.error(at, message, 'unsupported_parameter');
  }
  const name = tool.string('name');
  const description = tool.get('description');
  const parameters = tool.get('input_schema');
  tool.ignore('cache_control', 'strict', 'eager_input_streaming', 'input_examples', 'defer_loading');
  tool.ignore('allowed_callers');
  tool.requireKnown();
  if (description !== undefined && typeof description !== 'string')
    throw fields.error(`${at}.description`, `${at}.description is ${show(description)}. Give a text.`);
  if (typeof parameters !== 'object' || parameters === null || Array.isArray(parameters))
    throw fields.error(`${at}.input_schema`, `${at}.input_schema must be a JSON schema.`);
  const described = description === undefined ? {} : { description };
  return { type: 'function', function: { name, ...described, parameters } };
}

function systemOf(fields: Fields): ChatMessage[] {
  const system = fields.get('system');
  if (system === undefined) return [];
  return [{ role: 'system', content: textsOf(fields, system, 'system') }];
}

function messagesOf(fields: Fields, model: ModelText): ChatMessage[] {
  const list = fields.get('messages');
  if (!Array.isArray(list) || list.length === 0)
    throw fields.error('messages', 'messages must be a list of one message or more.');
  if (list.length > model.contextTokens) {
    const message = `There are ${list.length} messages, and the context has ${model.contextTokens} tokens.`;
    throw fields.error('messages', `${message} Leave out the oldest.`, 'context_length_exceeded');
  }
  /** Names of tools by the calls of the conversation: a template may name the tool beside its result. */
  const names = new Map<string, string>();
  return list.flatMap((each: unknown, i) => {
    const at = `messages[${i}]`;
    const message = blockFields(fields, each, at);
    const role = message.get('role');
    const content = message.get('content');
    message.requireKnown();
    if (role === 'system') return [{ role, content: textsOf(fields, content, `${at}.content`) }];
    if (role === 'user') return userTurn(fields, content, `${at}.content`, names);
    if (role === 'assistant') return [assistantTurn(fields, content, `${at}.content`, names)];
    throw fields.error(`${at}.role`, `${at}.role is ${show(role)}. Give user, assistant or system.`);
  });
}

function assistantTurn(
  fields: Fields,
  content: unknown,
  at: string,
  names: Map<string, string>,
): ChatMessage {
  if (typeof content === 'string') return { role: 'assistant', content };
  const texts: string[] = [];
  const calls: TemplateCall[] = [];
  for (const [block, path, each] of blocksOf(fields, content, at)) {
    const type = block.get('type');
    if (type === 'text') texts.push(textOf(fields, block, path));
    else if (type === 'tool_use') {
      const [id, name] = [block.string('id'), block.string('name')];
      const input = block.get('input') ?? {};
      block.ignore('caller');
      if (typeof input !== 'object' || Array.isArray(input))
        throw fields.error(`${path}.input`, `${path}.input is ${show(input)}. Give an object.`);
      names.set(id, name);
      calls.push({ id, type: 'function', function: { name, arguments: input as object } });
    } else throw otherType(fields, path, type ?? each, 'text or tool_use');
    block.requireKnown();
  }
  const said = texts.join('\n');
  return { role: 'assistant', content: said, ...(calls.length === 0 ? {} : { tool_calls: calls }) };
}

/** Results of tools are messages of their own, in their place among the texts. */
function userTurn(
  fields: Fields,
  content: unknown,
  at: string,
  names: ReadonlyMap<string, string>,
): ChatMessage[] {
  if (typeof content === 'string') return [{ role: 'user', content }];
  const turns: ChatMessage[] = [];
  let texts: string[] = [];
  const closeTexts = (): void => {
    if (texts.length > 0) turns.push({ role: 'user', content: texts.join('\n') });
    texts = [];
  };
  for (const [block, path, each] of blocksOf(fields, content, at)) {
    const type = block.get('type');
    if (type === 'text') texts.push(textOf(fields, block, path));
    else if (type === 'tool_result') {
      closeTexts();
      const id = block.string('tool_use_id');
      const name = names.get(id);
      if (name === undefined) {
        const message = `${path}.tool_use_id is ${show(id)}, which no tool_use before it has. Send the call too.`;
        throw fields.error(`${path}.tool_use_id`, message);
      }
      const isError = block.boolean('is_error');
      const result = block.get('content');
      const said = result === undefined ? '' : textsOf(fields, result, `${path}.content`);
      turns.push({ role: 'tool', tool_call_id: id, name, content: isError ? `Error: ${said}` : said });
    } else throw otherType(fields, path, type ?? each, 'text or tool_result');
    block.requireKnown();
  }
  closeTexts();
  return turns;
}

/** A text, or parts that are all texts: one a line. */
function textsOf(fields: Fields, content: unknown, at: string): string {
  if (typeof content === 'string') return content;
  const texts: string[] = [];
  for (const [block, path, each] of blocksOf(fields, content, at)) {
    const type = block.get('type');
    if (type !== 'text') throw otherType(fields, path, type ?? each, 'text');
    texts.push(textOf(fields, block, path));
    block.requireKnown();
  }
  return texts.join('\n');
}

function textOf(fields: Fields, block: Fields, path: string): string {
  const text = block.get('text');
  if (typeof text === 'string') return text;
  throw fields.error(path, `${path} has no text. Give { type: "text", text }.`);
}

function* blocksOf(fields: Fields, content: unknown, at: string): Generator<[Fields, string, unknown]> {
  if (!Array.isArray(content))
    throw fields.error(at, `${at} is ${show(content)}. Give a text, or a list of blocks.`);
  for (const [i, each] of content.entries()) {
    const path = `${at}[${i}]`;
    const block = blockFields(fields, each, path);
    block.ignore(...withoutEffectInBlocks);
    yield [block, path, each];
  }
}

function blockFields(fields: Fields, each: unknown, at: string): Fields {
  if (typeof each !== 'object' || each === null || Array.isArray(each))
    throw fields.error(at, `${at} is ${show(each)}. Give an object.`);
  return new Fields(each, `${at}.`);
}

function otherType(fields: Fields, path: string, type: unknown, known: string): ApiError {
  const message = `${path} is of the type ${show(type)}, and this server reads ${known} there.`;
  return fields.error(path, message, 'unsupported_parameter');
}
