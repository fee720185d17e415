/**
 * Messages to a prompt, by the template that comes with the model. `@huggingface/jinja` renders it, the package by which
 * transformers.js renders the templates of its models: what it does not know it refuses, and the client is told.
 *
 * A template may take tools, and write a call as `<tool_call>{"name", "arguments"}</tool_call>`. The template itself is asked
 * whether it does: it renders a chat that has a tool and a call of it.
 */

import { createRequire } from 'node:module';
import { TierKVError } from '../../../../src/index.ts';
import { byName } from './chatTemplateFiles.ts';
import { contentOf, isTimeout, within } from './tokenizer.ts';

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
  /** Calls that an assistant made in this turn. */
  readonly tool_calls?: readonly TemplateCall[];
  /** The call that a message of the role `tool` answers, and the name of the tool. */
  readonly tool_call_id?: string;
  readonly name?: string;
}

/** A call as templates read it: arguments are an object, not its JSON. */
export interface TemplateCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; readonly arguments: object };
}

/** A tool as templates read it. */
export interface TemplateTool {
  readonly type: 'function';
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: object };
}

/** What stands around a call in the text of a model. */
export const callMarks = { open: '<tool_call>', close: '</tool_call>' } as const;

interface JinjaTemplate {
  render(values: Record<string, unknown>): string;
}

/** Its types do not resolve under `nodenext`, so it is required by name. */
const { Template } = createRequire(import.meta.url)('@huggingface/jinja') as {
  readonly Template: new (text: string) => JinjaTemplate;
};

/** What transformers gives to a template by name, where the model has it. */
const specialNames = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'].map((name) => `${name}_token`);
/** How long a template may take over one chat. It takes milliseconds unless it loops without end. */
const renderMs = 2000;
/** Numbers that `range` gives at most: a list of them is made at once. */
const rangeMost = 100_000;
/** Characters of a prompt at most. */
const textMost = 2 ** 24;

const probeTool: TemplateTool = {
  type: 'function',
  function: { name: 'probe_tool', description: 'probe', parameters: { type: 'object', properties: {} } },
};
const probeCall: TemplateCall = {
  id: 'call00001', // nine characters, which some templates ask for
  type: 'function',
  function: { name: 'probe_tool', arguments: { probe_argument: 1 } },
};

export class ChatTemplate {
  readonly #template: JinjaTemplate | undefined;
  /** For chats with tools, where the model has one apart. */
  readonly #withTools: JinjaTemplate | undefined;
  /** Names of the templates, where there are several and none is the default. */
  readonly #names: readonly string[];
  readonly #special: Record<string, unknown> = {};
  #takesTools: boolean | undefined;

  /**
   * @param settings `tokenizer_config.json`; its `chat_template` is one template, or several with names, of which
   * `default` is used, and `tool_use` for chats with tools @throws TKV_INPUT for a template that does not parse
   */
  constructor(settings: Readonly<Record<string, unknown>>) {
    for (const name of Object.keys(settings)) {
      const text =
        specialNames.includes(name) || name.endsWith('_token') ? contentOf(settings[name]) : undefined;
      if (text !== undefined) this.#special[name] = text;
    }
    const more = settings.additional_special_tokens ?? settings.extra_special_tokens;
    if (Array.isArray(more)) this.#special.additional_special_tokens = more.map(contentOf);
    const named = byName(settings.chat_template, 'tokenizer_config.json');
    this.#names = Object.keys(named).sort();
    this.#template = parsed(named.default);
    this.#withTools = parsed(named.tool_use) ?? this.#template;
  }

  /** Whether it tells the model of tools, and has calls in the form that this server reads. */
  get takesTools(): boolean {
    this.#takesTools ??= this.#asksForTools();
    return this.#takesTools;
  }

  /**
   * @param tools given only where `takesTools`
   * @throws TKV_INPUT for messages that the template refuses, and for a model without a template
   */
  render(messages: readonly ChatMessage[], tools: readonly TemplateTool[] = []): string {
    const template = tools.length > 0 ? this.#withTools : this.#template;
    if (template === undefined) {
      const has =
        this.#names.length === 0
          ? 'has no chat template'
          : `has the chat templates ${this.#names.join(', ')}, and no default`;
      const message = `This model ${has}. Use /v1/completions.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'messages' });
    }
    const values = {
      messages,
      tools: tools.length > 0 ? tools : null,
      documents: null,
      add_generation_prompt: true,
      bounded_range: boundedRange,
      ...this.#special,
    };
    try {
      const text = within(renderMs, () => template.render(values));
      if (text.length > textMost) throw new Error(`its text is too long: ${text.length} characters`);
      return text;
    } catch (cause) {
      const isEndless = isTimeout(cause);
      const why = cause instanceof Error ? cause.message : String(cause);
      const problem = isEndless ? `takes more than ${renderMs} ms over` : 'refuses';
      const message = `The model's chat template ${problem} these messages (${why}). Change roles or their order.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'messages', cause });
    }
  }

  #asksForTools(): boolean {
    if (this.#withTools === undefined) return false;
    const said: ChatMessage = { role: 'assistant', content: '', tool_calls: [probeCall] };
    try {
      const text = this.render(
        [{ role: 'user', content: 'x' }, said, { role: 'tool', content: 'y', tool_call_id: probeCall.id }],
        [probeTool],
      );
      const at = text.lastIndexOf(callMarks.open);
      const call = text.slice(at + callMarks.open.length, text.indexOf(callMarks.close, at));
      const { name, arguments: given } = JSON.parse(call) as Record<string, unknown>;
      return at > text.indexOf('probe_tool') && name === 'probe_tool' && typeof given === 'object';
    } catch {
      return false; // the template refuses them, or has another form of calls
    }
  }
}

function parsed(text: string | undefined): JinjaTemplate | undefined {
  if (text === undefined) return undefined;
  try {
    // jinja2 reads all line breaks as one kind, the package does not
    return within(renderMs, () => new Template(boundedRangeFirst + text.replace(/\r\n?/g, '\n')));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const message = `chat_template of the model does not parse (${why}). Give another model.`;
    throw new TierKVError('TKV_INPUT', message, { field: 'chat_template', cause });
  }
}

/** The package takes no other `range` by its values. The line break goes with the tag, so the text of a template is as it was. */
const boundedRangeFirst = '{% set range = bounded_range %}\n';

/** Templates come from others: a list of their length is made before any limit of time is asked. */
function boundedRange(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (!(count <= rangeMost))
    throw new Error(`range gives ${count} numbers, and at most ${rangeMost} are made`);
  return Array.from({ length: count }, (_, i) => from + i * step);
}
