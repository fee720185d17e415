/** Chat templates render as transformers renders them, and are found where transformers finds them. */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ChatMessage,
  ChatTemplate,
  type TemplateTool,
  TextTokenizer,
} from '../../../../examples/server/engine/text/index.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';

interface Rendered {
  /** How the texts were made. */
  readonly how: string;
  readonly templates: Readonly<Record<string, string>>;
  readonly chats: Readonly<
    Record<
      string,
      { readonly messages: readonly ChatMessage[]; readonly tools: readonly TemplateTool[] | null }
    >
  >;
  readonly cases: readonly {
    readonly template: string;
    readonly chat: string;
    readonly text?: string;
    readonly fails?: string;
  }[];
}

const data = JSON.parse(
  readFileSync(new URL('./fixtures/chatTemplates.json', import.meta.url), 'utf8'),
) as Rendered;
const templateNamed = (name: string): ChatTemplate =>
  new ChatTemplate({ chat_template: data.templates[name], bos_token: '<s>', eos_token: '</s>' });

describe('templates', () => {
  it('render as jinja2 with the settings of transformers renders them, or refuse where it does', () => {
    expect(data.cases.length).toBeGreaterThan(30);
    expect(data.cases.filter(({ fails }) => fails !== undefined).length).toBeGreaterThan(1);
    for (const { template, chat, text, fails } of data.cases) {
      const { messages, tools } = data.chats[chat];
      const rendered = (): string => templateNamed(template).render(messages, tools ?? []);
      if (text === undefined) expect(rendered, `${template}, ${chat}: ${fails}`).toThrow(/refuses these/);
      else expect(rendered(), `${template}, ${chat}`).toBe(text);
    }
  });

  it('take tools where they have calls in the form that is read', () => {
    const taking = Object.keys(data.templates).filter((name) => templateNamed(name).takesTools);
    expect(taking).toEqual(['hermes tools']);
  });

  it.each([
    [
      'loops',
      '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}',
      /more than 2000 ms/,
    ],
    ['texts', "{{ 'a' * 1000000000 }}", /refuses/],
    ['numbers', '{{ 9 ** 999999999 }}', /refuses/],
    ['lists', '{{ range(1000000000) }}', /at most 100000/],
    ['recursion', '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}', /./],
    ['output', `{% for a in range(100000) %}${'a'.repeat(1000)}{% endfor %}`, /too long/],
  ])('are refused when they never end: %s', (_name, template, words) => {
    const chat = new ChatTemplate({ chat_template: template });
    expect(() => chat.render([{ role: 'user', content: 'a' }])).toThrow(words);
  });

  it('of any depth are refused as such', () => {
    const deep = `{{ ${'('.repeat(200_000)} }}`;
    expect(() => new ChatTemplate({ chat_template: deep })).toThrow(/does not parse/);
  });
});

describe('a chat template', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'tierkv-templates-'));
    cpSync(tinyModelDirectory, directory, { recursive: true });
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  const configure = (change: object): void => {
    const path = join(directory, 'tokenizer_config.json');
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...change }));
  };
  const write = (name: string, text: string): void => writeFileSync(join(directory, name), text);
  const rendered = (): string =>
    new ChatTemplate(new TextTokenizer(directory, 512).settings).render([{ role: 'user', content: 'Hi' }]);
  const template = (name: string): string => `${name}: {{ messages[0].content }}`;

  it('stands in tokenizer_config.json, chat_template.json or chat_template.jinja, the last one first', () => {
    configure({ chat_template: template('config') });
    expect(rendered()).toBe('config: Hi');
    write('chat_template.json', JSON.stringify({ chat_template: template('json') }));
    expect(rendered()).toBe('json: Hi');
    write('chat_template.jinja', `${template('jinja')}\r\n`);
    expect(rendered()).toBe('jinja: Hi');
    configure({ chat_template: undefined });
    rmSync(join(directory, 'chat_template.json'));
    expect(rendered()).toBe('jinja: Hi');
  });

  it('is the default one of several', () => {
    const list = ['tool_use', 'default', 'rag'].map((name) => ({ name, template: template(name) }));
    configure({ chat_template: list });
    expect(rendered()).toBe('default: Hi');
    configure({ chat_template: undefined });
    write('chat_template.json', JSON.stringify({ chat_template: list }));
    expect(rendered()).toBe('default: Hi');
    rmSync(join(directory, 'chat_template.json'));
    mkdirSync(join(directory, 'additional_chat_templates'));
    write('additional_chat_templates/rag.jinja', template('rag'));
    write('additional_chat_templates/tool_use.jinja', template('tool_use'));
    expect(rendered).toThrow(/has the chat templates rag, tool_use, and no default/);
    write('chat_template.jinja', template('jinja'));
    expect(rendered()).toBe('jinja: Hi');
  });

  it('of another shape is refused by name', () => {
    for (const wrong of [5, [{ name: 'default' }], ['a'], { default: 3 }, true]) {
      configure({ chat_template: wrong });
      expect(rendered).toThrow(/chat_template/);
    }
  });

  it('has the special tokens of the model, also those of the older file', () => {
    configure({
      chat_template: '{{ bos_token }}{{ eos_token }}{{ "nothing" if tools == none and documents == none }}',
    });
    write('special_tokens_map.json', JSON.stringify({ bos_token: { content: '<s>' } }));
    expect(rendered()).toBe('<s><|im_end|>nothing');
  });
});
