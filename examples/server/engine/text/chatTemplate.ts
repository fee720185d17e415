/** Messages to a prompt, by the template that comes with the model, rendered as transformers does it. */

import { TierKVError } from '../../../../src/index.ts';
import { byName } from './chatTemplateFiles.ts';
import { Template } from './jinja/template.ts';
import { contentOf } from './tokenizer.ts';

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** What transformers gives to a template by name, where the model has it. */
const specialNames = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'].map((name) => `${name}_token`);

export class ChatTemplate {
  readonly #template: Template | undefined;
  /** Names of the templates, where there are several and none is the default. */
  readonly #names: readonly string[];
  readonly #special: Record<string, unknown> = {};

  /**
   * @param settings `tokenizer_config.json`; its `chat_template` is one template, or several with names, of which
   * `default` is used, since no tools are ever passed @throws TKV_INPUT for a template that does not parse
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
    const text = named.default;
    if (text === undefined) return;
    try {
      this.#template = new Template(text);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `chat_template of the model does not parse (${why}). Give another model.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'chat_template', cause });
    }
  }

  /** @throws TKV_INPUT for messages that the template refuses, and for a model without a template */
  render(messages: readonly ChatMessage[]): string {
    if (this.#template === undefined) {
      const has =
        this.#names.length === 0
          ? 'has no chat template'
          : `has the chat templates ${this.#names.join(', ')}, and no default`;
      const message = `This model ${has}. Use /v1/completions.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'messages' });
    }
    const values = { messages, tools: null, documents: null, add_generation_prompt: true, ...this.#special };
    try {
      return this.#template.render(values);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `The model's chat template refuses these messages (${why}). Change roles or their order.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'messages', cause });
    }
  }
}
