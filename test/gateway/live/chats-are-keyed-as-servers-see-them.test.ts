/** Keys of chats against a real server: the blocks that it finds cached are the ones that equal keys foretell. */

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findChatTemplate } from '../../../src/serve/gateway/chatPrompts.ts';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { readPrompt } from '../../../src/serve/gateway/prompts.ts';
import { LiveServer, model } from '../../examples/server/liveServer.ts';
import { gatewayOf } from './backends.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-chats-'));
afterAll(() => rmSync(folder, { recursive: true }));
const files = join(import.meta.dirname, '../../../examples/server/tinyModel/files');
const tokenizer = join(files, 'tokenizer.json');

/** The files of the model, with another chat template or none. */
function modelWith(name: string, template: unknown): string {
  const own = join(folder, name);
  cpSync(files, own, { recursive: true, filter: (path) => !path.endsWith('.safetensors') });
  const config = JSON.parse(readFileSync(join(own, 'tokenizer_config.json'), 'utf8')) as object;
  writeFileSync(join(own, 'tokenizer_config.json'), JSON.stringify({ ...config, chat_template: template }));
  return join(own, 'tokenizer.json');
}

const system = { role: 'system', content: 'You speak of ships, and of the sea that carries them. Be brief.' };
const question = (i: number): object[] => [
  ...(i % 3 === 0 ? [] : [system]),
  {
    role: 'user',
    content: `Tell me of ship ${'abc'[i % 2]}, as they told it in the harbour, and of trip ${i % 5}.`,
  },
];

async function chat(gateway: Gateway, messages: unknown, more: object = {}): Promise<Response> {
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages, max_tokens: 1, temperature: 0, ...more }),
  });
}

interface Row {
  readonly block_keys: readonly string[];
  readonly prompt_tokens: number;
  readonly counted_prompt_tokens: number;
  readonly cached_tokens: number;
}

/** Chats one after the other before a fresh server. @returns blocks found, as foretold by keys and as the server says */
async function run(name: string, tokenizerFile: string | undefined) {
  const trace = join(folder, `${name}.trace`);
  let counts: Gateway['counts'];
  let cutting: string;
  {
    await using server = await LiveServer.start({ hbmBytes: 2 ** 24, ddrBytes: 2 ** 24 });
    const more = tokenizerFile === undefined ? {} : { tokenizer: tokenizerFile };
    await using gateway = await gatewayOf([server], { trace, ...more });
    for (let i = 0; i < 12; i++) await (await chat(gateway, question(i))).text();
    ({ counts, cutting } = gateway);
  }
  const rows = readFileSync(trace, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Row);
  const foretold = rows.map(({ block_keys, prompt_tokens }, i) => {
    const shared = rows.slice(0, i).map((before) => {
      const differs = block_keys.findIndex((key, at) => before.block_keys[at] !== key);
      return differs === -1 ? block_keys.length : differs;
    });
    // the last token is always computed
    return Math.min(Math.max(0, ...shared), Math.floor((prompt_tokens - 1) / 16));
  });
  const found = rows.map(({ cached_tokens }) => Math.floor(cached_tokens / 16));
  return { foretold, found, counts, cutting, rows };
}

describe('chats before a real server', () => {
  it('are cut as the server cuts them, by template and tokenizer', async () => {
    const { foretold, found, counts, cutting, rows } = await run('template', tokenizer);
    expect(foretold).toEqual(found);
    expect(new Set(found).size, 'some were found and some not').toBeGreaterThan(2);
    expect(rows.map(({ prompt_tokens }) => prompt_tokens)).toEqual(
      rows.map(({ counted_prompt_tokens }) => counted_prompt_tokens),
    );
    expect(counts).toMatchObject({ completed: 12, chatsByText: 0, promptsMiscounted: 0 });
    expect(cutting).toContain("model's template");
  });

  it('are not foretold without a template: so the check above can fail, and the gateway says why', async () => {
    const { foretold, found, cutting } = await run('none', modelWith('none', undefined));
    expect(foretold).not.toEqual(found);
    expect(cutting).toContain('since the model has no chat template');
  });

  it('of another template are counted as cut otherwise than the server does', async () => {
    const { counts } = await run('other', modelWith('other', '{{ messages[-1].content }}'));
    expect(counts).toMatchObject({ completed: 12, promptsMiscounted: 12 });
  });
});

describe('a chat that the template cannot render alone', () => {
  const found = findChatTemplate(
    modelWith('picky', '{{ raise_exception("no") if messages|length > 1 }}<{{ messages[0].content }}>'),
  );
  const read = (body: object) => readPrompt('/v1/chat/completions', JSON.stringify(body), found.template);
  const one = { role: 'user', content: 'hello' };

  it.each<[string, object]>([
    ['that it refuses', { messages: [one, one] }],
    ['with an image', { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] }],
    ['with a template of the client', { messages: [one], chat_template: '{{ 1 }}' }],
    ['without messages', {}],
    ['of nonsense', { messages: [7, null] }],
  ])('%s is keyed by its text, and is not taken for a prompt', (_what, body) => {
    expect(read(body)).toMatchObject({ isExact: false });
  });

  it('but parts of text are one text', () => {
    const parts = [
      { type: 'text', text: 'hel' },
      { type: 'text', text: 'lo' },
    ];
    expect(read({ messages: [{ role: 'user', content: parts }] })).toMatchObject({
      isExact: true,
      addsSpecial: false,
      prompt: '<hel\nlo>',
    });
  });

  it.each<[string, unknown, RegExp]>([
    ['that does not parse', '{% for %}', /does not parse/],
    ['that is an endless text', 'x'.repeat(2 ** 20 + 1), /letters/],
  ])('a template %s is refused at the start', (name, template, problem) => {
    const file = modelWith(name, template);
    expect(() => findChatTemplate(file)).toThrow(problem);
  });

  it('a template of its own for tools is taken for chats with tools', () => {
    const named = [
      { name: 'default', template: 'plain {{ messages[0].content }}' },
      { name: 'tool_use', template: 'tools {{ tools|length }}' },
    ];
    const { template } = findChatTemplate(modelWith('tools', named));
    const prompt = (more: object) =>
      readPrompt('/v1/chat/completions', JSON.stringify({ messages: [one], ...more }), template).prompt;
    expect([prompt({}), prompt({ tools: [{}] })]).toEqual(['plain hello', 'tools 1']);
  });
});
