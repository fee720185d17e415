/**
 * The first place where a prompt leaves an earlier one, the cause by name, and how much of the earlier prompt still follows
 * behind it: those bytes were cached and are computed again. A prompt that leaves an earlier one where nothing of it follows
 * is another branch or another conversation, and costs nothing.
 */

import { createHash } from 'node:crypto';
import type { PromptInParts, PromptPart } from './promptParts.ts';

/** Causes by name, each with its title and the remedy. */
export const causes = {
  model: {
    title: 'another model',
    remedy: 'Keep one model through a conversation: no two models share a cache.',
  },
  template: {
    title: 'settings of the template',
    remedy:
      'Keep what the template reads (its text, its arguments, reasoning, documents) the same in all turns.',
  },
  toolOrder: {
    title: 'tools in another order',
    remedy: 'Sort the tools by name before each request.',
  },
  tools: {
    title: 'other tools',
    remedy: 'Send the same tools in all turns; name in tool_choice which may be called.',
  },
  header: {
    title: 'a moving header line',
    remedy: 'Take the line out of the prompt, or send it as an HTTP header.',
  },
  date: {
    title: 'a date or time',
    remedy: 'Put it into the newest message, or round it to the day and keep it for the conversation.',
  },
  tokenMarker: {
    title: 'a count of tokens',
    remedy: 'Put the count into the newest message, or leave it out.',
  },
  identifier: {
    title: 'a moving identifier',
    remedy: 'Leave it out of the prompt, or keep one for the conversation.',
  },
  thinking: {
    title: 'thinking rendered in another way',
    remedy: 'Send thinking of earlier turns back as it came, or leave it out from the first turn on.',
  },
  whitespace: {
    title: 'whitespace or JSON written in another way',
    remedy: 'Send texts and arguments of calls back byte for byte, without parsing and writing them again.',
  },
  image: {
    title: 'an image encoded in another way',
    remedy: 'Encode an image once, and send the same bytes or the same address in all turns.',
  },
  cacheControl: {
    title: 'cache_control moved',
    remedy:
      'Leave the marks on tools and the system text where they are; move only the one on the newest message.',
  },
  trimmed: {
    title: 'earlier messages left out',
    remedy:
      'Cut the history rarely and by much, at one place, so that what follows is cached again for many turns.',
  },
  inserted: {
    title: 'something put in before earlier messages',
    remedy: 'Put new text behind the messages that were sent.',
  },
  edited: { title: 'an earlier text was changed', remedy: 'Send earlier texts again as they were.' },
} as const;

export type Cause = keyof typeof causes;

export interface Difference {
  readonly cause: Cause;
  /** Place in the later body. */
  readonly path: string;
  /** Bytes of the prompt before it, and bytes of its part before it. */
  readonly promptByte: number;
  readonly partByte: number;
  /** The lines that differ, shortened. */
  readonly before: string;
  readonly after: string;
  /** Name of the header or of tools; empty for most causes. */
  readonly detail: string;
  /** Whether it lies in settings, tools or the system text. */
  readonly isBeforeMessages: boolean;
  /** Bytes of the earlier prompt that follow in the later one behind the difference. */
  readonly lostBytes: number;
}

export interface Compared {
  /** Bytes that both begin with. */
  readonly commonBytes: number;
  /** Whether the later prompt begins with all of the earlier one. */
  readonly continues: boolean;
  /** Undefined where it continues, and where nothing that was cached follows behind the first difference. */
  readonly difference: Difference | undefined;
}

/** Least share of what stood behind a difference that must follow in the later prompt. */
const LEAST_SHARE = 0.5;
/** Fewer lost bytes are no loss: less than a block. */
const LEAST_BYTES = 64;
/** Bytes of the earlier prompt that a change of a text may take away, and as a share of what stood behind it. */
const CHANGED_BYTES = 256;
const CHANGED_SHARE = 0.1;
/** Letters of the line that are shown. */
const SHOWN = 100;

const bytesOf = (text: string): number => Buffer.byteLength(text);

export function promptBytes({ parts }: PromptInParts): number {
  let bytes = 0;
  for (const { kind, text } of parts) if (kind !== 'setting') bytes += bytesOf(text);
  return bytes;
}

/** A line of a part, by a hash of its letters without white space. */
interface Piece {
  readonly key: string;
  readonly bytes: number;
}

/** Lines of a part. Thinking has none, since servers drop it on their own; nor have settings, which are no text of the prompt. */
export function piecesOf({ kind, form, text }: PromptPart): Piece[] {
  if (form === 'thinking' || kind === 'setting') return [];
  const lines = form === 'image' ? [text] : text.split(/(?<=\n)/);
  const pieces: Piece[] = [];
  for (const line of lines) {
    const plain = line.replace(/\s+/g, '');
    if (plain === '') continue;
    pieces.push({
      key: createHash('sha1').update(plain).digest('base64').slice(0, 16),
      bytes: bytesOf(line),
    });
  }
  return pieces;
}

const sameContent = (a: PromptPart | undefined, b: PromptPart | undefined): boolean =>
  a !== undefined &&
  b !== undefined &&
  a.text === b.text &&
  a.kind === b.kind &&
  a.form === b.form &&
  (a.kind === 'setting' ? a.path === b.path : a.role === b.role);

export function compare(earlier: PromptInParts, later: PromptInParts): Compared {
  const [old, now] = [earlier.parts, later.parts];
  let at = 0;
  let commonBytes = 0;
  while (at < old.length && sameContent(old[at], now[at])) {
    if (old[at].kind !== 'setting') commonBytes += bytesOf(old[at].text);
    at++;
  }
  // what was sent before, or a beginning of it
  if (at === old.length || at === now.length) return { commonBytes, continues: true, difference: undefined };
  const [was, is] = [old[at], now[at]];
  const isText = was.kind === is.kind && was.form === is.form && was.kind !== 'setting';
  const letter = isText ? firstLetter(was.text, is.text) : 0;
  const partByte = bytesOf(was.text.slice(0, letter));
  // the last text goes on, as the prompt of a completion does, or ends before
  const isEnd = (parts: readonly PromptPart[]): boolean =>
    at === parts.length - 1 && letter === parts[at].text.length;
  if (isText && (isEnd(old) || isEnd(now))) {
    return { commonBytes: commonBytes + partByte, continues: true, difference: undefined };
  }
  if (was.kind !== 'setting') commonBytes += partByte;
  const lineEnd = isText ? nextLine(was.text, letter) : was.text.length;
  const { cause, detail } = causeOf(old, now, at, letter);
  // thinking that is left out takes its own lines with it
  const own = was.kind === 'setting' || cause === 'thinking' ? [] : rest(was, lineEnd);
  const { kept, gone } = sharedBytes(
    [...own, ...old.slice(at + 1)],
    was.kind === 'setting' ? now : now.slice(at),
  );
  const isSmall = gone <= Math.max(CHANGED_BYTES, CHANGED_SHARE * (kept + gone));
  const isLoss =
    kept >= LEAST_BYTES && kept >= LEAST_SHARE * (kept + gone) && (isSmall || !smallCauses.has(cause));
  if (!isLoss) return { commonBytes, continues: false, difference: undefined };
  const difference: Difference = {
    cause,
    detail,
    path: is.path,
    promptByte: was.kind === 'setting' ? 0 : commonBytes,
    partByte,
    before: excerpt(was.text, letter),
    after: excerpt(is.text, letter),
    isBeforeMessages: was.kind !== 'message',
    lostBytes: kept,
  };
  return { commonBytes: difference.promptByte, continues: false, difference };
}

/** Causes that change a word or a line: a change of more is another text. */
const smallCauses: ReadonlySet<Cause> = new Set(['header', 'date', 'tokenMarker', 'identifier', 'edited']);

const rest = (part: PromptPart, from: number): PromptPart[] =>
  from >= part.text.length ? [] : [{ ...part, text: part.text.slice(from) }];

function nextLine(text: string, from: number): number {
  const end = text.indexOf('\n', from);
  return end < 0 ? text.length : end + 1;
}

/** Index of the first letter that differs, at the beginning of a letter of two units. */
function firstLetter(a: string, b: string): number {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  return at > 0 && /[\ud800-\udbff]/.test(a[at - 1]) ? at - 1 : at;
}

/** Bytes of lines of some parts that are among the lines of others, and bytes of the lines that are not. */
function sharedBytes(
  parts: readonly PromptPart[],
  others: readonly PromptPart[],
): { kept: number; gone: number } {
  const there = new Map<string, number>();
  for (const part of others) {
    for (const { key } of piecesOf(part)) there.set(key, (there.get(key) ?? 0) + 1);
  }
  let kept = 0;
  let gone = 0;
  for (const part of parts) {
    for (const { key, bytes } of piecesOf(part)) {
      const left = there.get(key) ?? 0;
      if (left > 0) {
        there.set(key, left - 1);
        kept += bytes;
      } else gone += bytes;
    }
  }
  return { kept, gone };
}

interface NamedCause {
  readonly cause: Cause;
  readonly detail: string;
}

const named = (cause: Cause, detail = ''): NamedCause => ({ cause, detail });

function causeOf(
  old: readonly PromptPart[],
  now: readonly PromptPart[],
  at: number,
  letter: number,
): NamedCause {
  const was = old[at];
  const is = now[at];
  if (was.kind === 'setting') return named(was.path === 'model' ? 'model' : 'template');
  if (was.kind === 'tool' || is.kind === 'tool') return toolCause(old, now);
  if (isThinking(old, now, at)) return named('thinking');
  if (was.form === 'image' && is.form === 'image') return named('image');
  // a part of the earlier prompt further on, and the other way round
  if (old.slice(at + 1).some((part) => sameContent(part, is))) return named('trimmed');
  if (now.slice(at + 1).some((part) => sameContent(part, was))) return named('inserted');
  if (was.kind !== is.kind || was.form !== is.form) return named('edited');
  return textCause(was.text, is.text, letter);
}

/** Whether the prompts are alike from there on but for thinking. */
function isThinking(old: readonly PromptPart[], now: readonly PromptPart[], at: number): boolean {
  const [was, is] = [old[at], now[at]];
  const without = (text: string): string =>
    text.replace(/<think(ing)?>[\s\S]*?<\/think(ing)?>\s*/g, '').trim();
  if (was.form === 'thinking' || is.form === 'thinking') {
    const plain = (parts: readonly PromptPart[]): PromptPart[] =>
      parts.slice(at).filter(({ form }) => form !== 'thinking');
    const [a, b] = [plain(old), plain(now)];
    return a.length === 0 || sameContent(a[0], b[0]);
  }
  return (
    is !== undefined && /<think(ing)?>/.test(was.text + is.text) && without(was.text) === without(is.text)
  );
}

function toolCause(old: readonly PromptPart[], now: readonly PromptPart[]): NamedCause {
  const tools = (parts: readonly PromptPart[]): PromptPart[] => parts.filter(({ kind }) => kind === 'tool');
  const [was, is] = [tools(old), tools(now)];
  const sorted = (parts: readonly PromptPart[], text: (part: PromptPart) => string): string =>
    parts.map(text).sort().join('\n');
  if (sorted(was, ({ text }) => text) === sorted(is, ({ text }) => text)) return named('toolOrder');
  if (sorted(was, canonical) === sorted(is, canonical)) return named('whitespace', 'tools');
  const [names, others] = [was, is].map((parts) => new Set(parts.map(({ role }) => role)));
  const added = [...others].filter((name) => !names.has(name));
  const removed = [...names].filter((name) => !others.has(name));
  const list = (word: string, some: readonly string[]): string[] =>
    some.length === 0 ? [] : [`${word} ${some.slice(0, 5).join(', ')}`];
  if (added.length + removed.length > 0) {
    return named('tools', [...list('added', added), ...list('removed', removed)].join('; '));
  }
  // the same tools: a text within one of them has changed
  const changed = was.find((tool) => !is.some((other) => other.text === tool.text)) as PromptPart;
  const other = is.find(({ role }) => role === changed.role) as PromptPart;
  const { cause } = textCause(changed.text, other.text, firstLetter(changed.text, other.text));
  return cause === 'edited' ? named('tools', `changed ${changed.role}`) : named(cause, changed.role);
}

/** JSON with names in order, so that two ways to write a value are one. */
function canonical({ text }: Pick<PromptPart, 'text'>): string {
  const ordered = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(ordered);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([name, inner]) => [name, ordered(inner)]),
    );
  };
  try {
    return JSON.stringify(ordered(JSON.parse(text)));
  } catch {
    return text;
  }
}

const dates =
  /\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}(:\d{2})?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\b(Mon|Tues?|Wed(nes)?|Thu(rs)?|Fri|Sat(ur)?|Sun)(day)?\b|\b(Jan(uary)?|Feb(ruary)?|Mar(ch)?|Apr(il)?|May|June?|July?|Aug(ust)?|Sept?(ember)?|Oct(ober)?|Nov(ember)?|Dec(ember)?)\b|\b1[6-9]\d{8}(\d{3})?\b/;
const identifiers =
  /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=\w*\d)[0-9a-zA-Z_-]{8,}\b/;
/** A line as HTTP has headers: a name of words with hyphens, or one that speaks of a session, a bill or a request. */
const headers =
  /^\s*([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+|\w*(?:session|billing|request|trace|nonce|build)[\w ]*)\s*[:=]/i;

function textCause(was: string, is: string, letter: number): NamedCause {
  const plain = (text: string): string => text.replace(/\s+/g, '');
  if (plain(was) === plain(is) || canonical({ text: was }) === canonical({ text: is }))
    return named('whitespace');
  const [line, other] = [lineAt(was, letter), lineAt(is, letter)];
  if (jsonPiecesEqual(was, is)) return named('whitespace');
  const header = headers.exec(line.text);
  if (header !== null && headers.exec(other.text)?.[1] === header[1]) return named('header', header[1]);
  const [word, otherWord] = [wordAt(line), wordAt(other)];
  if (isNumber(word) && isNumber(otherWord) && /token|context/i.test(line.text)) return named('tokenMarker');
  if (dates.test(near(line)) && dates.test(near(other))) return named('date');
  if (identifiers.test(word) && identifiers.test(otherWord)) return named('identifier');
  return named('edited');
}

interface TextLine {
  readonly text: string;
  /** Index of the first letter that differs. */
  readonly at: number;
}

function lineAt(text: string, letter: number): TextLine {
  const from = text.lastIndexOf('\n', letter - 1) + 1;
  const end = text.indexOf('\n', letter);
  return { text: text.slice(from, end < 0 ? undefined : end), at: letter - from };
}

/** The word of the difference, with what belongs to a number or a time. */
function wordAt({ text, at }: TextLine): string {
  const isPart = (letter: string | undefined): boolean => letter !== undefined && /[\w,.:/+-]/.test(letter);
  let from = at;
  while (isPart(text[from - 1])) from--;
  let end = at;
  while (isPart(text[end])) end++;
  return text.slice(from, end);
}

const isNumber = (word: string): boolean => /^\d[\d,._]*(\/\d[\d,._]*)?[.,:]?$/.test(word);

/** The line about the difference. */
const near = ({ text, at }: TextLine): string => text.slice(Math.max(0, at - 24), at + 24);

/** Whether both texts are alike once each JSON value in them is written in one way, as in a call within a text. */
function jsonPiecesEqual(was: string, is: string): boolean {
  const pattern = /\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}/g;
  const same = (text: string): string => text.replace(pattern, (json) => canonical({ text: json }));
  return /[{]/.test(was) && same(was) === same(is);
}

/** The line of a difference, shortened about it. */
function excerpt(text: string, letter: number): string {
  const { text: line, at } = lineAt(text, Math.min(letter, text.length));
  const from = Math.max(0, Math.min(at - SHOWN / 3, line.length - SHOWN));
  const shown = line.slice(from, from + SHOWN);
  return `${from > 0 ? '...' : ''}${shown}${from + SHOWN < line.length ? '...' : ''}`;
}
