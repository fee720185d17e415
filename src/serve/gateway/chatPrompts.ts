/**
 * The prompt of a chat: what the model's template makes of its messages, where the template is given, so that keys of its
 * blocks are those of the blocks that a server computes. Else, and for a chat that the template refuses or that holds
 * more than text, the messages one behind the other: equal beginnings of two chats are equal beginnings of these texts.
 *
 * A body of Anthropic's API is the chat that servers make of it before their template reads it.
 */

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import { parseJson } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';

/** Fields of a client's JSON body. */
export type BodyFields = Readonly<Record<string, unknown>>;

interface JinjaTemplate {
  render(values: Record<string, unknown>): string;
}

interface JinjaLibrary {
  readonly Template: new (text: string) => JinjaTemplate;
}

/** A chat as one text. */
interface ChatText {
  readonly text: string;
  /** Whether it is what the model's template makes. */
  readonly isTemplate: boolean;
  /** Whether the tokenizer puts its own tokens around it: the template has them already, unless the client says so. */
  readonly addsSpecial: boolean;
}

/** Longest template that is read, in bytes: the longest known one has 30,000. */
const TEMPLATE_BYTES_MOST = 2 ** 20;

export class ChatTemplate {
  readonly #template: JinjaTemplate;
  /** The one for chats with tools, where the model has it apart. */
  readonly #withTools: JinjaTemplate;
  readonly #special: Readonly<Record<string, unknown>>;

  constructor(template: JinjaTemplate, withTools: JinjaTemplate, special: Readonly<Record<string, unknown>>) {
    this.#template = template;
    this.#withTools = withTools;
    this.#special = special;
  }

  /** @returns undefined for a chat that the template refuses, or that it does not decide alone */
  render(fields: BodyFields): string | undefined {
    const messages = textMessages(fields.messages);
    // a template that a client brings is not run here
    if (messages === undefined || given(fields.chat_template)) return undefined;
    const { tools, chat_template_kwargs: more } = fields;
    const hasTools = Array.isArray(tools) && tools.length > 0;
    const template = hasTools ? this.#withTools : this.#template;
    try {
      return template.render({
        ...this.#special,
        documents: fields.documents ?? null,
        ...(typeof more === 'object' && more !== null && !Array.isArray(more) ? more : {}),
        messages,
        tools: hasTools ? tools : null,
        add_generation_prompt: fields.add_generation_prompt !== false,
      });
    } catch {
      return undefined; // a template refuses by an exception
    }
  }
}

function given(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Messages whose contents are texts: parts one a line, as vLLM gives them to a template. Undefined for others. */
function textMessages(value: unknown): unknown[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const messages: unknown[] = [];
  for (const message of value as unknown[]) {
    if (typeof message !== 'object' || message === null || Array.isArray(message)) return undefined;
    const { content } = message as BodyFields;
    if (!Array.isArray(content)) {
      messages.push(message);
      continue;
    }
    const texts = (content as (BodyFields | null)[]).map((part) =>
      part?.type === 'text' ? part.text : undefined,
    );
    if (!texts.every((text) => typeof text === 'string')) return undefined;
    messages.push({ ...message, content: texts.join('\n') });
  }
  return messages;
}

/** The text of a chat. @param template null where the model's is not known */
export function chatText(fields: BodyFields, template: ChatTemplate | null): ChatText {
  const text = template?.render(fields);
  if (text === undefined) return { text: plainText(fields), isTemplate: false, addsSpecial: true };
  return { text, isTemplate: true, addsSpecial: fields.add_special_tokens === true };
}

/**
 * A body of Anthropic's `/v1/messages` as the chat that vLLM, SGLang and llama.cpp make of it: the system text is the first
 * message, calls of tools are calls, and results of tools are messages of their own. Marks of `cache_control` are no text of
 * the prompt, and move with each turn. What has no form in a chat (thinking, images) stays a part that no template takes.
 */
export function chatOfMessages({ system, messages, tools, ...rest }: BodyFields): BodyFields {
  const chat: unknown[] = [];
  if (given(system)) {
    const texts = Array.isArray(system) ? (system as unknown[]).map(plainPart) : [system];
    const isText = texts.every((text) => typeof text === 'string');
    chat.push({ role: 'system', content: isText ? texts.join('') : texts });
  }
  for (const message of Array.isArray(messages) ? (messages as unknown[]) : []) {
    if (!isFields(message) || !Array.isArray(message.content)) chat.push(message);
    else chat.push(...turnsOf(message.role, message.content as unknown[]));
  }
  const list = Array.isArray(tools) ? (tools as unknown[]).map(toolOfMessages) : [];
  return { ...rest, messages: chat, ...(list.length === 0 ? {} : { tools: list }) };
}

/** A turn's results of tools, each as a message, and what else it says. */
function turnsOf(role: unknown, blocks: readonly unknown[]): unknown[] {
  const results: unknown[] = [];
  const parts: unknown[] = [];
  const calls: unknown[] = [];
  for (const block of blocks) {
    if (!isFields(block)) parts.push(block);
    else if (block.type === 'tool_use') {
      const { id, name, input = {} } = block;
      calls.push({ id, type: 'function', function: { name, arguments: input } });
    } else if (block.type === 'tool_result') {
      const { content = '' } = block;
      const said = Array.isArray(content) ? (content as unknown[]).map(withoutMarks) : content;
      results.push({ role: 'tool', tool_call_id: block.tool_use_id, content: said });
    } else parts.push(withoutMarks(block));
  }
  const isEmpty = parts.length === 0 && calls.length === 0;
  if (isEmpty && results.length > 0) return results;
  const said = { role, content: parts, ...(calls.length === 0 ? {} : { tool_calls: calls }) };
  return [...results, said];
}

const isFields = (value: unknown): value is BodyFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function withoutMarks(block: unknown): unknown {
  if (!isFields(block)) return block;
  const { cache_control: _, ...rest } = block;
  return rest;
}

/** The text of a block that has nothing else; the block without its mark otherwise. */
function plainPart(block: unknown): unknown {
  return isFields(block) && block.type === 'text' ? block.text : withoutMarks(block);
}

function toolOfMessages(tool: unknown): unknown {
  if (!isFields(tool) || tool.input_schema === undefined) return withoutMarks(tool);
  const { name, description, input_schema: parameters } = tool;
  const described = description === undefined ? {} : { description };
  return { type: 'function', function: { name, ...described, parameters } };
}

function plainText({ messages, tools }: BodyFields): string {
  const parts: string[] = [];
  if (tools !== undefined) parts.push(JSON.stringify(tools));
  for (const message of Array.isArray(messages) ? (messages as unknown[]) : []) {
    if (typeof message !== 'object' || message === null) continue;
    const { role, content, ...rest } = message as BodyFields;
    const more = Object.keys(rest).length === 0 ? '' : JSON.stringify(rest);
    parts.push(`${String(role)}${more}\n${contentText(content)}`);
  }
  return parts.join('\n\n');
}

function contentText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return given(content) ? JSON.stringify(content) : '';
  return content
    .map((part: unknown) => {
      const isText = typeof part === 'object' && part !== null && (part as BodyFields).type === 'text';
      return isText ? String((part as BodyFields).text) : JSON.stringify(part);
    })
    .join('\n');
}

/** A template, or why it is missing, in words for an operator. */
export type FoundTemplate =
  | { readonly template: ChatTemplate }
  | { readonly template: null; readonly why: string };

/**
 * The chat template of a model, by the files beside its `tokenizer.json`: `chat_template.jinja`, `chat_template.json`, or
 * `chat_template` of `tokenizer_config.json`, the first that is there.
 * @throws TKV_INPUT for a file that is not what its name says, and for a template that does not parse
 */
export function findChatTemplate(tokenizerPath: string): FoundTemplate {
  const beside = (name: string): string => join(dirname(tokenizerPath), name);
  const json = (name: string): BodyFields => (existsSync(beside(name)) ? readObject(beside(name)) : {});
  const config = json('tokenizer_config.json');
  const jinja = beside('chat_template.jinja');
  const written = existsSync(jinja)
    ? readText(jinja)
    : (json('chat_template.json').chat_template ?? config.chat_template);
  const templates = byName(written);
  if (templates.default === undefined) return { template: null, why: 'the model has no chat template' };
  let library: JinjaLibrary;
  try {
    library = createRequire(import.meta.url)('@huggingface/jinja') as JinjaLibrary;
  } catch {
    return {
      template: null,
      why: 'the package that renders templates is missing: npm install @huggingface/jinja',
    };
  }
  const parsed = (text: string): JinjaTemplate => {
    try {
      if (text.length > TEMPLATE_BYTES_MOST) throw new Error(`it has ${text.length} letters`);
      return new library.Template(text);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw notATemplate(tokenizerPath, `whose chat template does not parse: ${why}`, cause);
    }
  };
  const main = parsed(templates.default);
  const withTools = templates.tool_use === undefined ? main : parsed(templates.tool_use);
  return { template: new ChatTemplate(main, withTools, specialTokens(config)) };
}

/** One template, or a list or an object of named ones. */
function byName(value: unknown): Readonly<Record<string, string | undefined>> {
  if (typeof value === 'string') return { default: value };
  if (typeof value !== 'object' || value === null) return {};
  const entries = Array.isArray(value)
    ? (value as BodyFields[]).map((each) => [each?.name, each?.template] as const)
    : Object.entries(value);
  return Object.fromEntries(entries.filter((each): each is [string, string] => typeof each[1] === 'string'));
}

/** Special tokens that templates may name: `bos_token` and the like. */
function specialTokens(config: BodyFields): Record<string, unknown> {
  const special: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(config)) {
    if (!name.endsWith('_token')) continue;
    const text = typeof value === 'object' && value !== null ? (value as BodyFields).content : value;
    if (typeof text === 'string') special[name] = text;
  }
  return special;
}

function readObject(path: string): BodyFields {
  const value = parseJson(readText(path), (problem, cause) => notATemplate(path, problem, cause), 2 ** 24);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as BodyFields;
  throw notATemplate(path, 'is not an object');
}

function notATemplate(path: string, problem: string, cause?: unknown): TierKVError {
  const message = `${path} ${problem}. Name the tokenizer.json among the files of a model.`;
  return new TierKVError('TKV_INPUT', message, { path, cause });
}
