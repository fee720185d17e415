/**
 * Every decoder of `tokenizers` gives the text that the library gives, and an answer's text is decode(prompt and
 * answer) less decode(prompt), whatever the decoder, the tokens and the border.
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { Detokenizer, StopStrings, TextTokenizer } from '../../../../examples/server/engine/text/index.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import { testSeed } from '../../../../src/testing/index.ts';

interface Decoded {
  /** How the texts were made. */
  readonly how: string;
  readonly tokens: readonly string[];
  readonly shapes: readonly {
    readonly name: string;
    readonly decoder: object | null;
    readonly cases: readonly (readonly [ids: number[], text: string])[];
  }[];
}

const data = JSON.parse(
  readFileSync(new URL('./fixtures/decodedTokens.json', import.meta.url), 'utf8'),
) as Decoded;
const vocabulary = data.tokens.length + 2;
const scratch = mkdtempSync(join(tmpdir(), 'tierkv-text-'));
afterAll(() => rmSync(scratch, { recursive: true }));

let made = 0;
function tokenizerOf(decoder: object | null, settings: object = {}, model: object = {}): TextTokenizer {
  const directory = join(scratch, `${made++}`);
  mkdirSync(directory);
  const added = (id: number, content: string, special: boolean): object => {
    return { id, content, special, single_word: false, lstrip: false, rstrip: false, normalized: false };
  };
  const json = {
    version: '1.0',
    added_tokens: [
      added(0, '[UNK]', true),
      added(vocabulary - 2, '<|plain|>', false),
      added(vocabulary - 1, '<|end|>', true),
    ],
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder,
    model: {
      type: 'WordLevel',
      unk_token: '[UNK]',
      vocab: Object.fromEntries(data.tokens.map((token, id) => [token, id])),
      ...model,
    },
  };
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(directory, 'tokenizer_config.json'), JSON.stringify(settings));
  return new TextTokenizer(directory, vocabulary);
}

/** The text of an answer by its definition. */
function lessPrompt(whole: string, prompt: string): string {
  let at = 0;
  const characters = Array.from(whole);
  for (const character of Array.from(prompt)) {
    if (characters[at] !== character) break;
    at++;
  }
  return characters.slice(at).join('');
}

function streamed(tokenizer: TextTokenizer, prompt: number[], answer: number[]): string[] {
  const detokenizer = new Detokenizer(tokenizer, prompt);
  return [...answer.map((token) => detokenizer.push(token)), detokenizer.end()];
}

const seed = testSeed(37);
const lists = fc.array(fc.nat(vocabulary), { maxLength: 12 });
const shapes = data.shapes.map(({ name, decoder }) => ({ name, tokenizer: tokenizerOf(decoder) }));
const cleaned = data.shapes.map(({ name, decoder }) => {
  return {
    name: `${name}, cleaned up`,
    tokenizer: tokenizerOf(decoder, { clean_up_tokenization_spaces: true }),
  };
});
const tiny = { name: 'the tiny model', tokenizer: new TextTokenizer(tinyModelDirectory, 512) };

describe('decode', () => {
  it.each(data.shapes)('$name: gives the text of the library', ({ decoder, cases }) => {
    const tokenizer = tokenizerOf(decoder);
    expect(cases.length).toBeGreaterThan(20);
    for (const [ids, text] of cases) expect(tokenizer.decode(ids), JSON.stringify(ids)).toBe(text);
  });

  it('leaves spaces where clean-up is absent or false, takes them where it is true, and never for BPE', () => {
    const id = (token: string): number => data.tokens.indexOf(token);
    const tokens = [' ', '!', ' ', ',', 'a', " '", 's'].map((token) =>
      id(token) === -1 ? id('x') : id(token),
    );
    const text = (settings: object, model: object = {}): string =>
      tokenizerOf({ type: 'Fuse' }, settings, model).decode(tokens);
    expect(text({})).toBe(" ! ,a 'x");
    expect(text({ clean_up_tokenization_spaces: false })).toBe(" ! ,a 'x");
    expect(text({ clean_up_tokenization_spaces: true })).toBe("!,a 'x");
    const bpe = { type: 'BPE', merges: [] };
    const corrupts = 'clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output';
    expect(text({ clean_up_tokenization_spaces: true }, bpe)).toBe(" ! ,a 'x");
    expect(text({ clean_up_tokenization_spaces: true, [corrupts]: true }, bpe)).toBe("!,a 'x");
    expect(() => text({ clean_up_tokenization_spaces: 'yes' })).toThrow(
      /clean_up_tokenization_spaces is "yes"/,
    );
  });

  // As transformers 5.24 decodes them with skip_special_tokens.
  it.each([
    [{}, 'hello<|plain|>un'],
    [{ eos_token: { content: 'hello' } }, '<|plain|>un'],
    [{ eos_token: '<|plain|>' }, 'helloun'],
    [{ image_token: 'un' }, 'hello<|plain|>'],
    [{ additional_special_tokens: ['un', '<|plain|>'] }, 'hello<|plain|>'],
    [{ extra_special_tokens: { x: 'hello' } }, '<|plain|>un'],
    [{ added_tokens_decoder: { [vocabulary - 2]: { content: '<|plain|>', special: true } } }, 'helloun'],
    [
      { added_tokens_decoder: { [vocabulary - 1]: { content: '<|end|>', special: false } } },
      'hello<|plain|>un',
    ],
  ])('leaves out what the settings %j name as special', (settings, text) => {
    const [hello, un] = ['hello', 'un'].map((token) => data.tokens.indexOf(token));
    const tokens = [hello, vocabulary - 2, vocabulary - 1, un];
    expect(tokenizerOf({ type: 'Fuse' }, settings).decode(tokens)).toBe(text);
  });
});

describe('an answer', () => {
  it.each([...shapes, ...cleaned, tiny])('$name: is the whole text less the prompt', ({ tokenizer }) => {
    fc.assert(
      fc.property(lists, lists, (prompt, answer) => {
        const whole = tokenizer.decode([...prompt, ...answer]);
        const pieces = streamed(tokenizer, prompt, answer);
        expect(pieces.join('')).toBe(lessPrompt(whole, tokenizer.decode(prompt)));
      }),
      { seed, numRuns: 300 },
    );
  });

  it('begins with the character that its prompt did not end', () => {
    const { tokenizer } = tiny;
    const tokens = tokenizer.encode('a😀b', false);
    for (let cut = 0; cut <= tokens.length; cut++) {
      const [prompt, answer] = [tokens.slice(0, cut), tokens.slice(cut)];
      const text = streamed(tokenizer, prompt, answer).join('');
      expect('a😀b'.endsWith(text)).toBe(true);
      expect(text).not.toContain('\ufffd');
    }
  });

  it('comes as soon as it is certain, for the decoders of byte-level and SentencePiece models', () => {
    const id = (token: string): number => data.tokens.indexOf(token);
    const llama = shapes.find(({ name }) => name === 'Llama 2');
    const pieces = streamed(llama?.tokenizer as TextTokenizer, [id('▁a')], ['▁the', 'b', '▁!'].map(id));
    expect(pieces).toEqual([' the', 'b', ' !', '']);
    const bytes = shapes.find(({ name }) => name === 'ByteLevel');
    const more = streamed(bytes?.tokenizer as TextTokenizer, [id('a')], ['Ġworld', 'b', 'Ċ'].map(id));
    expect(more).toEqual([' world', 'b', '\n', '']);
  });
});

describe('stop strings', () => {
  it('end the text at the same place, whatever the pieces', () => {
    const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 5 }), {
      maxLength: 3,
    });
    const texts = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 4 }), { maxLength: 12 });
    const cut = (each: readonly string[], pieces: readonly string[]): string => {
      const stop = new StopStrings(each);
      return (
        pieces.map((piece) => stop.push(piece)).join('') + (stop.stoppedAt !== undefined ? '' : stop.end())
      );
    };
    fc.assert(
      fc.property(stops, texts, (each, pieces) => {
        const whole = pieces.join('');
        expect(cut(each, pieces)).toBe(cut(each, [whole]));
        expect(cut(each, pieces)).toBe(cut(each, Array.from(whole)));
      }),
      { seed, numRuns: 2000 },
    );
  });
});
