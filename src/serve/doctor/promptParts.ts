/**
 * A request's prompt in parts, in the order in which servers render it: settings that change the rendering, tools, the system
 * text, messages. Bodies of OpenAI's chat, completions and Responses API and of Anthropic's messages are read; equal content
 * in another form of the same API (a text, or a list of one text) gives equal parts.
 */

import type { BodyFields } from '../gateway/chatPrompts.ts';

export type PartKind = 'setting' | 'tool' | 'system' | 'message';
export type PartForm = 'text' | 'thinking' | 'call' | 'result' | 'image' | 'other';

export interface PromptPart {
  /** Place in the body, such as `messages[3].content[0].text`. */
  readonly path: string;
  readonly kind: PartKind;
  /** Speaker of a message, and the name of a tool; empty otherwise. */
  readonly role: string;
  readonly form: PartForm;
  /** Text of the part; JSON of anything else. */
  readonly text: string;
  /** Whether `cache_control` stands on it. */
  readonly isMarked: boolean;
}

export interface PromptInParts {
  readonly parts: readonly PromptPart[];
  /** False where the server keeps the beginning (`previous_response_id`). */
  readonly isWhole: boolean;
}

/** Fields that change how a template renders, or which model computes. */
const settingFields = [
  'model',
  'chat_template',
  'chat_template_kwargs',
  'documents',
  'reasoning_effort',
  'thinking',
] as const;

const isObject = (value: unknown): value is BodyFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** JSON of a value without the marks of caches, names in the order of the body. */
function jsonWithoutMarks(value: unknown): string {
  return (
    JSON.stringify(value, (name, inner: unknown) => (name === 'cache_control' ? undefined : inner)) ?? ''
  );
}

/** The prompt of a body; undefined for a body that has none. */
export function promptOf(body: BodyFields): PromptInParts | undefined {
  const rest = [...toolParts(body), ...systemParts(body), ...messageParts(body)];
  if (!rest.some(({ kind }) => kind === 'message')) return undefined;
  const settings = settingFields.map(
    (name): PromptPart => ({
      path: name,
      kind: 'setting',
      role: '',
      form: 'other',
      text:
        body[name] === undefined
          ? ''
          : typeof body[name] === 'string'
            ? body[name]
            : JSON.stringify(body[name]),
      isMarked: false,
    }),
  );
  return { parts: [...settings, ...rest], isWhole: typeof body.previous_response_id !== 'string' };
}

function toolParts({ tools }: BodyFields): PromptPart[] {
  if (!Array.isArray(tools)) return [];
  return (tools as unknown[]).map((tool, i) => {
    const named = isObject(tool) && isObject(tool.function) ? tool.function : tool;
    const name = isObject(named) && typeof named.name === 'string' ? named.name : '';
    return {
      path: `tools[${i}]`,
      kind: 'tool',
      role: name,
      form: 'other',
      text: jsonWithoutMarks(tool),
      isMarked: isMarked(tool),
    };
  });
}

function systemParts({ system, instructions }: BodyFields): PromptPart[] {
  if (system !== undefined) return contentParts(system, 'system', 'system', 'system');
  return instructions === undefined || instructions === null
    ? []
    : contentParts(instructions, 'instructions', 'system', 'system');
}

function messageParts({ messages, prompt, input }: BodyFields): PromptPart[] {
  if (Array.isArray(messages)) {
    return (messages as unknown[]).flatMap((message, i) => partsOfMessage(message, `messages[${i}]`));
  }
  if (Array.isArray(input)) {
    return (input as unknown[]).flatMap((item, i) => partsOfMessage(item, `input[${i}]`));
  }
  if (typeof input === 'string') return contentParts(input, 'input', 'message', 'user');
  return prompt === undefined || prompt === null ? [] : contentParts(prompt, 'prompt', 'message', 'user');
}

function partsOfMessage(message: unknown, path: string): PromptPart[] {
  if (!isObject(message)) return contentParts(message, path, 'message', 'user');
  const { role, type, content, tool_calls: calls, reasoning_content: reasoning } = message;
  const speaker = typeof role === 'string' ? role : typeof type === 'string' ? type : '';
  const kind = speaker === 'system' || speaker === 'developer' ? 'system' : 'message';
  const parts: PromptPart[] = [];
  if (typeof reasoning === 'string' && reasoning !== '') {
    parts.push(part(`${path}.reasoning_content`, kind, speaker, 'thinking', reasoning, false));
  }
  if (content !== undefined && content !== null) {
    const ofTool = speaker === 'tool' || speaker === 'function';
    parts.push(
      ...contentParts(content, `${path}.content`, kind, speaker).map((each) =>
        ofTool && each.form === 'text' ? { ...each, form: 'result' as const } : each,
      ),
    );
  } else if (type !== undefined && role === undefined) {
    parts.push(partOfBlock(message, path, kind, speaker));
  }
  if (Array.isArray(calls)) {
    for (const [i, call] of (calls as unknown[]).entries()) {
      parts.push(
        part(`${path}.tool_calls[${i}]`, kind, speaker, 'call', jsonWithoutMarks(call), isMarked(call)),
      );
    }
  }
  return parts;
}

function contentParts(content: unknown, path: string, kind: PartKind, role: string): PromptPart[] {
  if (typeof content === 'string') return [part(path, kind, role, 'text', content, false)];
  if (!Array.isArray(content)) return [part(path, kind, role, 'other', jsonWithoutMarks(content), false)];
  // token ids are one part
  if (content.length > 0 && content.every((each) => typeof each === 'number')) {
    return [part(path, kind, role, 'text', content.join(' '), false)];
  }
  return (content as unknown[]).map((block, i) => partOfBlock(block, `${path}[${i}]`, kind, role));
}

function partOfBlock(block: unknown, path: string, kind: PartKind, role: string): PromptPart {
  if (typeof block === 'string') return part(path, kind, role, 'text', block, false);
  if (!isObject(block)) return part(path, kind, role, 'other', jsonWithoutMarks(block), false);
  const { type, text, thinking } = block;
  const marked = isMarked(block);
  const named = typeof type === 'string' ? type : '';
  if (typeof text === 'string' && !named.includes('reasoning')) {
    return part(`${path}.text`, kind, role, 'text', text, marked);
  }
  if (named.includes('thinking') || named.includes('reasoning')) {
    const inner = typeof thinking === 'string' ? thinking : jsonWithoutMarks(block);
    return part(path, kind, role, 'thinking', inner, marked);
  }
  if (named.includes('image')) return part(path, kind, role, 'image', jsonWithoutMarks(block), marked);
  if (named === 'tool_result' || named === 'function_call_output') {
    return part(path, kind, role, 'result', resultText(block), marked);
  }
  const form = named === 'tool_use' || named === 'function_call' ? 'call' : 'other';
  return part(path, kind, role, form, jsonWithoutMarks(block), marked);
}

/** Text of a tool's result where it is plain; JSON otherwise. */
function resultText(block: BodyFields): string {
  const { content, output } = block;
  const said = content ?? output;
  if (typeof said === 'string') return said;
  if (Array.isArray(said) && said.every((each) => isObject(each) && typeof each.text === 'string')) {
    return said.map((each) => (each as { readonly text: string }).text).join('\n');
  }
  return jsonWithoutMarks(said);
}

const isMarked = (value: unknown): boolean => isObject(value) && isObject(value.cache_control);

function part(
  path: string,
  kind: PartKind,
  role: string,
  form: PartForm,
  text: string,
  marked: boolean,
): PromptPart {
  return { path, kind, role, form, text, isMarked: marked };
}
