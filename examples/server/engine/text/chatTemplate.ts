/** Messages to a prompt, by the template that comes with the model, rendered by `@huggingface/jinja`. */

import { createRequire } from 'node:module';
import { TierKVError } from '../../../../src/index.ts';

/** What is used of the package. Its own types do not resolve under `nodenext`, so it is required by name. */
interface JinjaPackage {
  readonly Template: new (text: string) => { render(values: object): string };
}
const { Template } = createRequire(import.meta.url)('@huggingface/jinja') as JinjaPackage;

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export class ChatTemplate {
  readonly #template: { render(values: object): string } | undefined;
  readonly #special: Record<string, string> = {};

  /** @param settings `tokenizer_config.json` @throws TKV_INPUT for a template that does not parse */
  constructor(settings: Readonly<Record<string, unknown>>) {
    for (const name of ['bos_token', 'eos_token', 'unk_token', 'pad_token']) {
      const value = settings[name];
      const text = typeof value === 'object' && value !== null && 'content' in value ? value.content : value;
      if (typeof text === 'string') this.#special[name] = text;
    }
    const { chat_template: text } = settings;
    if (typeof text !== 'string') return;
    try {
      this.#template = new Template(text);
    } catch (cause) {
      throw new TierKVError('TKV_INPUT', `chat_template of the model does not parse. Give another model.`, {
        field: 'chat_template',
        cause,
      });
    }
  }

  /** @throws TKV_INPUT for messages that the template refuses, and for a model without a template */
  render(messages: readonly ChatMessage[]): string {
    if (this.#template === undefined) {
      const message = 'This model has no chat template. Use /v1/completions.';
      throw new TierKVError('TKV_INPUT', message, { field: 'messages' });
    }
    try {
      return this.#template.render({ messages, add_generation_prompt: true, ...this.#special });
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `The model's chat template refuses these messages (${why}). Change roles or their order.`;
      throw new TierKVError('TKV_INPUT', message, { field: 'messages', cause });
    }
  }
}
