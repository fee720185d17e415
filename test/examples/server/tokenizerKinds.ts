/**
 * The tiny model with tokenizers of the three kinds that models come with: bytes as characters, pieces with a
 * mark for spaces and bytes behind them, and words with marked continuations. Each has a token for every id,
 * so that whatever the model says is text.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tinyCopy } from './tinyCopy.ts';

export const tokenizerKinds = ['byte-level', 'sentence-piece', 'word-piece'] as const;
export type TokenizerKind = (typeof tokenizerKinds)[number];

const vocabulary = 512;

/** A directory with the tiny model and a tokenizer of the kind. */
export function modelOfKind(kind: TokenizerKind): string {
  const directory = tinyCopy();
  if (kind === 'byte-level') return directory;
  const [tokenizer, settings] = kind === 'sentence-piece' ? sentencePiece() : wordPiece();
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(join(directory, 'tokenizer_config.json'), JSON.stringify(settings));
  return directory;
}

const letters = [...'etaoinshrdlucmfwypvbgkjqxz'];
const others = [...'0123456789.,!?;:\'"()-äöüß日本語'];
/** The more frequent ones first. */
const pairs = letters.flatMap((_, sum) =>
  letters.slice(0, sum + 1).map((each, i) => each + letters[sum - i]),
);

function added(contents: readonly string[]): object[] {
  return contents.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
}

function ids(tokens: readonly string[]): Record<string, number> {
  const all = [...new Set(tokens)].slice(0, vocabulary);
  if (all.length < vocabulary) throw new Error(`${all.length} tokens are too few`);
  return Object.fromEntries(all.map((token, id) => [token, id]));
}

function sentencePiece(): [tokenizer: object, settings: object] {
  const special = ['<unk>', '<s>', '</s>'];
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
  );
  const words = letters.map((letter) => `▁${letter}`);
  const vocab = ids([...special, ...bytes, '▁', ...letters, ...others, ...words, ...pairs]);
  const merges = [...words, ...pairs].filter((token) => token in vocab).map((token) => [...token].join(' '));
  const tokenizer = {
    version: '1.0',
    added_tokens: added(special),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '▁' },
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    pre_tokenizer: null,
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      fuse_unk: true,
      byte_fallback: true,
      vocab,
      merges,
    },
  };
  return [
    tokenizer,
    { tokenizer_class: 'LlamaTokenizer', clean_up_tokenization_spaces: false, eos_token: '</s>' },
  ];
}

function wordPiece(): [tokenizer: object, settings: object] {
  const special = ['[PAD]', '[UNK]', '[SEP]'];
  const continued = [...letters, ...others].map((each) => `##${each}`);
  const vocab = ids([
    ...special,
    ...letters,
    ...others,
    ...continued,
    ...pairs,
    ...pairs.map((each) => `##${each}`),
  ]);
  const tokenizer = {
    version: '1.0',
    added_tokens: added(special),
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: null,
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab,
    },
  };
  return [
    tokenizer,
    { tokenizer_class: 'BertTokenizer', clean_up_tokenization_spaces: true, do_lower_case: true },
  ];
}
