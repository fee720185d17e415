/** Characters, stop strings and random draws: what stands between logits and the client. */

import { describe, expect, it } from 'vitest';
import { sampleToken } from '../../../../examples/server/engine/sampling.ts';
import {
  ChatTemplate,
  Detokenizer,
  StopStrings,
  TextTokenizer,
} from '../../../../examples/server/engine/text/index.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import { SeededRandom, testSeed } from '../../../../src/testing/index.ts';

const tokenizer = new TextTokenizer(tinyModelDirectory, 512);
const seed = testSeed(7);
const texts = [
  'Hello, world!',
  'Größe 😀👨‍👩‍👧 ok',
  '日本語のテキスト',
  '\n\n\ttabs  and   spaces ',
  'é\u0301',
  ' ',
];

describe('the detokenizer', () => {
  it.each(texts)('gives %j back, and never a part of a character', (text) => {
    const detokenizer = new Detokenizer(tokenizer);
    const pieces = tokenizer.encode(text, true).map((token) => detokenizer.push(token));
    pieces.push(detokenizer.end());
    expect(pieces.join('')).toBe(text);
    for (const piece of pieces) expect(piece).not.toContain('\ufffd');
  });

  it('gives bytes that are no text as U+FFFD, and goes on after them', () => {
    const detokenizer = new Detokenizer(tokenizer);
    const byte = (value: number): number => {
      const visible = value >= 0x80 && value < 0xa1 ? String.fromCharCode(0x100 + 34 + value - 0x7f - 1) : '';
      return tokenizer.encode(visible, false)[0] ?? 3;
    };
    let text = '';
    for (let i = 0; i < 20; i++) text += detokenizer.push(byte(0x80));
    for (const token of tokenizer.encode('fine', false)) text += detokenizer.push(token);
    text += detokenizer.end();
    expect(text.endsWith('fine')).toBe(true);
  });
});

describe('stop strings', () => {
  it('end the text before them, however the text is cut into pieces', () => {
    const random = new SeededRandom(seed);
    for (let round = 0; round < 2000; round++) {
      const text = Array.from({ length: 30 }, () => 'ab'[random.below(2)]).join('');
      const stops = Array.from({ length: 1 + random.below(3) }, () => {
        return Array.from({ length: 2 + random.below(5) }, () => 'ab'[random.below(2)]).join('');
      });
      const stop = new StopStrings(stops);
      let given = '';
      for (let at = 0; at < text.length && stop.stoppedAt === undefined; ) {
        const length = 1 + random.below(4);
        given += stop.push(text.slice(at, at + length));
        at += length;
        for (const each of stops) expect(given, `seed ${seed}`).not.toContain(each);
      }
      if (stop.stoppedAt === undefined) given += stop.end();
      // Of stops that overlap, which one is met first depends on the pieces; none is ever given out.
      expect(stop.stoppedAt !== undefined).toBe(stops.some((each) => text.includes(each)));
      expect(text.startsWith(given)).toBe(true);
      if (stop.stoppedAt === undefined) expect(given).toBe(text);
    }
  });
});

describe('sampling', () => {
  const logits = Float32Array.from([0, 1, 2, 3, 4, 4]);

  it('takes the likeliest token at temperature 0, the lower id of two', () => {
    expect(sampleToken(logits, { temperature: 0, topK: 0, topP: 1, seed: 1 }, 0)).toBe(4);
  });

  it('draws each token as often as the softmax says, within four standard errors', () => {
    const draws = 20_000;
    const counts = new Array<number>(6).fill(0);
    for (let i = 0; i < draws; i++) {
      counts[sampleToken(logits, { temperature: 1.5, topK: 0, topP: 1, seed }, i)]++;
    }
    const weights = Array.from(logits, (value) => Math.exp(value / 1.5));
    const total = weights.reduce((a, b) => a + b, 0);
    weights.forEach((weight, token) => {
      const expected = weight / total;
      const error = Math.sqrt((expected * (1 - expected)) / draws);
      expect(Math.abs(counts[token] / draws - expected), `token ${token}, seed ${seed}`).toBeLessThan(
        4 * error,
      );
    });
  });

  it('keeps to top-k and top-p', () => {
    const drawn = (topK: number, topP: number): number[] => {
      const tokens = new Set<number>();
      for (let i = 0; i < 500; i++)
        tokens.add(sampleToken(logits, { temperature: 2, topK, topP, seed: 3 }, i));
      return [...tokens].sort();
    };
    expect(drawn(0, 1)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(drawn(3, 1)).toEqual([3, 4, 5]);
    expect(drawn(0, 0.5)).toEqual([4, 5]);
    expect(drawn(0, 0)).toEqual([4]);
    expect(drawn(1, 1)).toEqual([4]);
  });

  it('draws the same for the same seed and place, and other tokens for others', () => {
    const flat = new Float32Array(1000);
    const draw = (from: number, index: number): number =>
      sampleToken(flat, { temperature: 1, topK: 0, topP: 1, seed: from }, index);
    expect(draw(5, 9)).toBe(draw(5, 9));
    expect(new Set(Array.from({ length: 50 }, (_, i) => draw(5, i))).size).toBeGreaterThan(40);
    expect(new Set(Array.from({ length: 50 }, (_, i) => draw(i, 5))).size).toBeGreaterThan(40);
  });
});

describe('the chat template', () => {
  it('is the one of the model', () => {
    const template = new ChatTemplate(tokenizer.settings);
    expect(template.render([{ role: 'user', content: 'Hi' }])).toBe(
      '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  it('may refuse messages, may not parse, may be missing: each is an error that says so', () => {
    const refusing = new ChatTemplate({ chat_template: "{{ raise_exception('roles must alternate') }}" });
    expect(() => refusing.render([])).toThrow(/refuses these messages/);
    expect(() => new ChatTemplate({ chat_template: '{% for %}' })).toThrow(/does not parse/);
    expect(() => new ChatTemplate({}).render([])).toThrow(/no chat template/);
  });
});
