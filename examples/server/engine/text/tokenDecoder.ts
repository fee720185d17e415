/**
 * Tokens to text, as the package `tokenizers` of Hugging Face decodes, one token at a time. Each decoder of a
 * `tokenizer.json` is a stage that takes tokens and gives tokens; the text is what the last stage gives, joined.
 * A stage gives a character out only when no later token can change it. So the text of a stream is the text of
 * all its tokens decoded at once, by construction.
 *
 *     tokens -> stage -> stage -> … -> clean-up -> text
 */

/** Takes a token, maybe in several pieces; `ends` is true with the last piece. */
interface Sink {
  push(piece: string, ends: boolean): void;
  /** No more tokens come. */
  end(): void;
}

/** One decoding under way. */
export interface TextStream {
  /** The text that became certain by this token. May be empty. */
  push(token: number): string;
  /** The text that was held back. */
  end(): string;
}

type Settings = Readonly<Record<string, unknown>>;
type MakeStage = (next: Sink) => Sink;

/** The decoder of a `tokenizer.json` as stages. @throws Error that says what is unknown or malformed */
export function decoderStages(decoder: unknown): MakeStage[] {
  if (decoder === null || decoder === undefined) return [(next) => eachToken(next, spaced)];
  if (typeof decoder !== 'object') throw new Error('decoder must be an object or null');
  const settings = decoder as Settings;
  const kind = String(settings.type);
  if (kind === 'Sequence') {
    if (!Array.isArray(settings.decoders)) throw new Error('decoder.decoders must be a list');
    return settings.decoders.flatMap((each) => {
      if (each === null || typeof each !== 'object') throw new Error('decoder.decoders must hold objects');
      return decoderStages(each);
    });
  }
  const make = Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
  if (make === undefined) {
    throw new Error(`the decoder ${kind} is unknown; known are Sequence, ${Object.keys(kinds).join(', ')}`);
  }
  return [make(settings)];
}

const kinds: Readonly<Record<string, (settings: Settings) => MakeStage>> = {
  ByteLevel: () => byteLevel,
  Metaspace: (settings) => {
    const mark = text(settings, 'replacement', '▁');
    const keepsFirst = settings.prepend_scheme === 'never' || settings.add_prefix_space === false;
    return (next) =>
      eachToken(next, (token, at) => token.replaceAll(mark, at === 0 && !keepsFirst ? '' : ' '));
  },
  WordPiece: (settings) => {
    const prefix = text(settings, 'prefix', '##');
    const cleans = settings.cleanup !== false;
    return (next) =>
      eachToken(next, (token, at) => {
        const joined = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
        const whole = at === 0 ? token : joined;
        return cleans ? replaced(whole, wordPieceCleanUp) : whole;
      });
  },
  BPEDecoder: (settings) => {
    const suffix = text(settings, 'suffix', '</w>');
    return (next) => lastIsOther(next, (token, isLast) => replaceAll(token, suffix, isLast ? '' : ' '));
  },
  CTC: (settings) => {
    const pad = text(settings, 'pad_token', '<pad>');
    const delimiter = text(settings, 'word_delimiter_token', '|');
    const cleans = settings.cleanup !== false;
    return (next) => {
      let before: string | undefined;
      return eachToken(next, (token) => {
        if (token === before) return undefined;
        before = token;
        const bare = replaceAll(token, pad, '');
        const clean = cleans ? replaceAll(replaced(bare, wordPieceCleanUp), delimiter, ' ') : bare;
        return clean === '' ? undefined : clean;
      });
    };
  },
  Replace: (settings) => {
    const content = text(settings, 'content', '');
    const pattern = settings.pattern as Settings | undefined;
    if (typeof pattern?.String === 'string') {
      const literal = pattern.String;
      return literal === '' ? (next) => next : (next) => literalReplacer(next, literal, content);
    }
    if (typeof pattern?.Regex !== 'string') throw new Error('decoder.pattern must be a String or a Regex');
    const expression = new RegExp(pattern.Regex, 'gu');
    return (next) => eachToken(next, (token) => token.replace(expression, () => content));
  },
  Fuse: () => (next) => ({
    push: (piece) => next.push(piece, false),
    end: () => {
      next.push('', true);
      next.end();
    },
  }),
  Strip: (settings) => {
    const content = text(settings, 'content', ' ');
    const [start, stop] = [count(settings, 'start'), count(settings, 'stop')];
    return (next) => stripper(next, content, start, stop);
  },
  ByteFallback: () => byteFallback,
};

/** What `clean_up_tokenization_spaces` does to a text, in this order. */
const textCleanUp = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

/** What a WordPiece or CTC decoder does to each token: the same, and one pair more after the seventh. */
const wordPieceCleanUp: readonly (readonly [string, string])[] = [
  ...textCleanUp.slice(0, 7),
  [' do not', " don't"],
  ...textCleanUp.slice(7),
];

export function cleanUpStages(): MakeStage[] {
  return textCleanUp.map(
    ([from, to]) =>
      (next) =>
        literalReplacer(next, from, to),
  );
}

/** Starts a decoding. @param tokenOf the token's text, or undefined for one that has none */
export function textStream(
  stages: readonly MakeStage[],
  cleanUp: readonly MakeStage[],
  tokenOf: (token: number) => string | undefined,
): TextStream {
  let out = '';
  const text: Sink = {
    push: (piece) => {
      out += piece;
    },
    end: () => {},
  };
  const cleaned = cleanUp.reduceRight((next, make) => make(next), text);
  // The clean-up goes over token borders: for it the whole text is one token.
  const whole: Sink = {
    push: (piece) => cleaned.push(piece, false),
    end: () => {
      cleaned.push('', true);
      cleaned.end();
    },
  };
  const first = stages.reduceRight((next, make) => make(next), whole);
  const taken = (): string => {
    const given = out;
    out = '';
    return given;
  };
  return {
    push: (token) => {
      const piece = tokenOf(token);
      if (piece !== undefined) first.push(piece, true);
      return taken();
    },
    end: () => {
      first.end();
      return taken();
    },
  };
}

/** A token by itself, by its place among the tokens; undefined drops it. */
function eachToken(next: Sink, change: (token: string, at: number) => string | undefined): Sink {
  let token = '';
  let at = 0;
  return {
    push: (piece, ends) => {
      token += piece;
      if (!ends) return;
      const changed = change(token, at++);
      token = '';
      if (changed !== undefined) next.push(changed, true);
    },
    end: () => next.end(),
  };
}

function spaced(token: string, at: number): string {
  return at === 0 ? token : ` ${token}`;
}

/** The last token is changed in another way, so each token waits for the next one. */
function lastIsOther(next: Sink, change: (token: string, isLast: boolean) => string): Sink {
  let waiting: string | undefined;
  const before = eachToken({ push: () => {}, end: () => {} }, (token) => {
    if (waiting !== undefined) next.push(change(waiting, false), true);
    waiting = token;
    return undefined;
  });
  return {
    push: (piece, ends) => before.push(piece, ends),
    end: () => {
      if (waiting !== undefined) next.push(change(waiting, true), true);
      next.end();
    },
  };
}

/** The characters that stand for bytes in a byte-level vocabulary: visible ones for themselves. */
const byteOfCharacter: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>();
  let other = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const isVisible =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
    map.set(String.fromCodePoint(isVisible ? byte : other++), byte);
  }
  return map;
})();

/** All tokens are one row of bytes, and the text is their UTF-8; what is not UTF-8 becomes U+FFFD. */
function byteLevel(next: Sink): Sink {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const tokens = eachToken({ push: () => {}, end: () => {} }, (token) => {
    const bytes = Array.from(token, (character) => byteOfCharacter.get(character));
    const isBytes = bytes.every((byte): byte is number => byte !== undefined);
    const taken = isBytes ? Uint8Array.from(bytes) : new TextEncoder().encode(token);
    next.push(decoder.decode(taken, { stream: true }), false);
    return undefined;
  });
  return {
    push: (piece, ends) => tokens.push(piece, ends),
    end: () => {
      next.push(decoder.decode(), true);
      next.end();
    },
  };
}

/**
 * A run of tokens `<0x..>` is one text, or one U+FFFD for each byte where the run is not UTF-8. Which of them
 * is known when the run ends, so the run waits for that.
 */
function byteFallback(next: Sink): Sink {
  let run: number[] = [];
  const giveRun = (): void => {
    if (run.length === 0) return;
    const bytes = Uint8Array.from(run);
    run = [];
    try {
      next.push(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes), true);
    } catch {
      for (const _ of bytes) next.push('\ufffd', true);
    }
  };
  const tokens = eachToken({ push: () => {}, end: () => {} }, (token) => {
    const [, hex] = /^<0x(\+[0-9A-Fa-f]|[0-9A-Fa-f]{2})>$/.exec(token) ?? [];
    if (hex !== undefined) run.push(Number.parseInt(hex, 16));
    else {
      giveRun();
      next.push(token, true);
    }
    return undefined;
  });
  return {
    push: (piece, ends) => tokens.push(piece, ends),
    end: () => {
      giveRun();
      next.end();
    },
  };
}

/** Every `from` within a token becomes `to`. The end of a token that may begin a `from` waits. */
function literalReplacer(next: Sink, from: string, to: string): Sink {
  let held = '';
  return {
    push: (piece, ends) => {
      const parts = (held + piece).split(from);
      const rest = parts[parts.length - 1];
      const keep = ends ? 0 : overlap(rest, from);
      held = rest.slice(rest.length - keep);
      parts[parts.length - 1] = rest.slice(0, rest.length - keep);
      next.push(parts.join(to), ends);
    },
    end: () => next.end(),
  };
}

/** How much of the end of `text` is a beginning of `pattern`, and shorter than it. */
export function overlap(text: string, pattern: string): number {
  let length = Math.min(text.length, pattern.length - 1);
  while (length > 0 && !text.endsWith(pattern.slice(0, length))) length--;
  return length;
}

/** Takes up to `start` times `content` off the beginning of each token, and up to `stop` times off its end. */
function stripper(next: Sink, content: string, start: number, stop: number): Sink {
  let left = start;
  /** How many `content` at the end of what came wait to be the token's end. */
  let waiting = 0;
  return {
    push: (piece, ends) => {
      let out = '';
      for (const character of piece) {
        if (character === content && left > 0) left--;
        else if (character === content) {
          if (waiting < stop) waiting++;
          else out += content;
        } else {
          out += content.repeat(waiting) + character;
          waiting = 0;
          left = 0;
        }
        if (character !== content) left = 0;
      }
      next.push(out, ends);
      if (!ends) return;
      left = start;
      waiting = 0;
    },
    end: () => next.end(),
  };
}

function replaced(whole: string, pairs: readonly (readonly [string, string])[]): string {
  return pairs.reduce((so, [from, to]) => so.replaceAll(from, to), whole);
}

/** As Rust's `str::replace`: `to` is taken as it is, and an empty `from` stands between all characters. */
function replaceAll(whole: string, from: string, to: string): string {
  if (from !== '') return whole.split(from).join(to);
  return to === '' ? whole : `${to}${Array.from(whole, (each) => each + to).join('')}`;
}

function text(settings: Settings, name: string, otherwise: string): string {
  const value = settings[name] ?? otherwise;
  if (typeof value === 'string') return value;
  throw new Error(`decoder.${name} must be a text`);
}

function count(settings: Settings, name: string): number {
  const value = settings[name] ?? 0;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new Error(`decoder.${name} must be a whole number from 0`);
}
