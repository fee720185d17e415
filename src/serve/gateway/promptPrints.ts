/**
 * Prints of prompts: enough of a prompt to say where a later one leaves it, and nothing from which its text could be read. A part
 * of a prompt (a tool, a text, a call) is a hash, and each of its lines a hash and its bytes, as `tierkv doctor` compares them;
 * of a difference within a text no letters are left, so its cause is told by its place and not by its words.
 *
 *     print.words = for each part: kind and form, hash, index behind its last line; then for each line: hash, bytes
 */

import { Buffer } from 'node:buffer';
import type { PartForm, PartKind, PromptInParts } from '../doctor/promptParts.ts';

export interface PromptPrint {
  readonly parts: number;
  readonly words: Uint32Array;
  /** Bytes of the prompt. */
  readonly bytes: number;
  /** Hash of the last part of a message, which a later turn holds; of a prompt that is one text, which may grow, of its first line. */
  readonly tip: number;
}

/** The place where a prompt leaves an earlier one. */
interface PrintedDifference {
  readonly cause:
    | 'model'
    | 'template'
    | 'toolOrder'
    | 'tools'
    | 'thinking'
    | 'image'
    | 'trimmed'
    | 'inserted'
    | 'whitespace'
    | 'edited';
  readonly kind: PartKind;
  /** Place in the later body. */
  readonly path: string;
  /** Bytes of the prompt before it, to the beginning of its line. */
  readonly promptByte: number;
  /** Bytes of the earlier prompt behind it, and how many of them follow in the later one. */
  readonly leftBytes: number;
  readonly keptBytes: number;
}

export interface ComparedPrints {
  /** Bytes that both begin with. */
  readonly commonBytes: number;
  /** Undefined where the later prompt goes on where the earlier one ends. */
  readonly difference: PrintedDifference | undefined;
  /** Whether the difference costs what a conversation had cached: much of the earlier prompt follows behind it. */
  readonly isLoss: boolean;
}

const kinds: readonly PartKind[] = ['setting', 'tool', 'system', 'message'];
const forms: readonly PartForm[] = ['text', 'thinking', 'call', 'result', 'image', 'other'];

const WORDS_A_PART = 3;
const WORDS_A_LINE = 2;

/** Least share of what stood behind a difference that must follow in the later prompt, and least bytes, as the doctor has them. */
const LEAST_SHARE = 0.5;
const LEAST_BYTES = 64;
/** Bytes that an edited text may take away, and as a share of what stood behind it: more is another text. */
const CHANGED_BYTES = 256;
const CHANGED_SHARE = 0.1;

const FNV = 0x811c9dc5;
const PRIME = 0x01000193;

/** One pass over a text: its hash, and each line by the hash of its letters without white space. */
function linesOf(text: string, from: number, lines: number[]): number {
  let whole = from;
  let line = FNV;
  let bytes = 0;
  let letters = 0;
  const close = (): void => {
    // bytes of an empty line count for the next one
    if (letters === 0) return;
    lines.push(line >>> 0, bytes);
    line = FNV;
    bytes = letters = 0;
  };
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    whole = Math.imul(whole ^ code, PRIME);
    // half of a pair of surrogates is two bytes of four
    bytes += code < 0x80 ? 1 : code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 2 : 3;
    if (code > 0x20 && code !== 0xa0) {
      line = Math.imul(line ^ code, PRIME);
      letters++;
    } else if (code === 0x0a) close();
  }
  close();
  return whole;
}

function hashOf(text: string, from: number = FNV): number {
  let hash = from;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), PRIME);
  return hash;
}

export function printOf({ parts }: PromptInParts): PromptPrint {
  const heads: number[] = [];
  const lines: number[] = [];
  let bytes = 0;
  let tip = 0;
  for (const { kind, form, role, path, text } of parts) {
    const name = kind === 'setting' ? path : role;
    const kindAndForm = kinds.indexOf(kind) * forms.length + forms.indexOf(form);
    const own: number[] = [];
    const hash = linesOf(text, hashOf(name, FNV + kindAndForm), own) >>> 0;
    const size = Buffer.byteLength(text);
    if (kind !== 'setting') bytes += size;
    // thinking has no lines, since servers drop it on their own; nor have settings, which are no text of the prompt
    if (form === 'image') lines.push(hash, size);
    else if (form !== 'thinking' && kind !== 'setting') for (const word of own) lines.push(word);
    heads.push(kindAndForm, hash, lines.length / WORDS_A_LINE);
    if (kind === 'message' && form !== 'thinking') tip = hash;
  }
  const words = new Uint32Array(heads.length + lines.length);
  words.set(heads);
  words.set(lines, heads.length);
  const print = { parts: parts.length, words, bytes, tip };
  const isOne = parts.length > 1 && kindOf(print, parts.length - 2) !== 'message';
  return isOne ? { ...print, tip: beginningOf(print, parts.length - 1) } : print;
}

/** Hashes by which an earlier turn is found: of the parts of messages, the newest first, and of the first line of all. */
export function* tipsHeld(print: PromptPrint): Generator<number> {
  let part = print.parts - 1;
  for (; part >= 0 && kindOf(print, part) === 'message'; part--) yield hashAt(print, part);
  yield beginningOf(print, part + 1);
}

/** Hash of the first line of a part; no part has that hash. */
function beginningOf(print: PromptPrint, part: number): number {
  const line = endOf(print, part - 1);
  return line < endOf(print, part) ? Math.imul(lineHash(print, line), PRIME) >>> 0 : 0;
}

const hashAt = ({ words }: PromptPrint, part: number): number => words[part * WORDS_A_PART + 1];
const kindOf = ({ words }: PromptPrint, part: number): PartKind =>
  kinds[Math.floor(words[part * WORDS_A_PART] / forms.length)];
const formOf = ({ words }: PromptPrint, part: number): PartForm =>
  forms[words[part * WORDS_A_PART] % forms.length];
const endOf = ({ words }: PromptPrint, part: number): number =>
  part < 0 ? 0 : words[part * WORDS_A_PART + 2];
const lineHash = ({ words, parts }: PromptPrint, line: number): number =>
  words[parts * WORDS_A_PART + line * WORDS_A_LINE];
const lineBytes = ({ words, parts }: PromptPrint, line: number): number =>
  words[parts * WORDS_A_PART + line * WORDS_A_LINE + 1];

function bytesOf(print: PromptPrint, from: number, to: number): number {
  let bytes = 0;
  for (let line = from; line < to; line++) bytes += lineBytes(print, line);
  return bytes;
}

/** @param pathOf the place of a part in the later body */
export function comparePrints(
  earlier: PromptPrint,
  later: PromptPrint,
  pathOf: (part: number) => string,
): ComparedPrints {
  let at = 0;
  while (at < earlier.parts && at < later.parts && hashAt(earlier, at) === hashAt(later, at)) at++;
  const begin = endOf(earlier, at - 1);
  const before = bytesOf(earlier, 0, begin);
  if (at === earlier.parts || at === later.parts) {
    return { commonBytes: before, difference: undefined, isLoss: false };
  }
  const [kind, otherKind] = [kindOf(earlier, at), kindOf(later, at)];
  const isText = kind !== 'setting' && kind === otherKind && formOf(earlier, at) === formOf(later, at);
  let line = begin;
  const most = Math.min(endOf(earlier, at) - begin, endOf(later, at) - begin);
  while (isText && line < begin + most && lineHash(earlier, line) === lineHash(later, line)) line++;
  // all of its letters stand there: it differs in white space, somewhere
  const isSpace =
    isText && line === endOf(earlier, at) && line === endOf(later, at) - endOf(later, at - 1) + begin;
  if (isSpace) line = begin;
  const commonBytes = bytesOf(earlier, 0, line);
  // the last text goes on within its last line, as the prompt of a completion does
  const isLast = (print: PromptPrint): boolean => at === print.parts - 1 && line >= endOf(print, at) - 1;
  if (isText && (isLast(earlier) || isLast(later)))
    return { commonBytes, difference: undefined, isLoss: false };
  const cause = isSpace && kind !== 'tool' ? 'whitespace' : causeOf(earlier, later, at);
  const isGoneWhole = kind === 'setting' || cause === 'thinking';
  const lastLine = endOf(earlier, earlier.parts - 1);
  const from = isGoneWhole ? endOf(earlier, at) : Math.min(line + 1, endOf(earlier, at));
  const { kept, gone } = shared(earlier, from, lastLine, later, kind === 'setting' ? 0 : begin);
  const isOther = cause === 'edited' && gone > Math.max(CHANGED_BYTES, CHANGED_SHARE * (kept + gone));
  const promptByte = kind === 'setting' ? 0 : commonBytes;
  const difference: PrintedDifference = {
    cause,
    // the kind that stands first in a prompt names what changed
    kind: kinds[Math.min(kinds.indexOf(kind), kinds.indexOf(otherKind))],
    path: pathOf(at),
    promptByte,
    leftBytes: Math.max(0, earlier.bytes - promptByte),
    keptBytes: kept,
  };
  return {
    commonBytes: promptByte,
    difference,
    isLoss: kept >= LEAST_BYTES && kept >= LEAST_SHARE * (kept + gone) && !isOther,
  };
}

/** Bytes of lines of the earlier prompt that are among the lines of the later one, and bytes of the other lines. */
function shared(
  earlier: PromptPrint,
  from: number,
  to: number,
  later: PromptPrint,
  laterFrom: number,
): { readonly kept: number; readonly gone: number } {
  const there = new Map<number, number>();
  const end = endOf(later, later.parts - 1);
  for (let line = laterFrom; line < end; line++) {
    const hash = lineHash(later, line);
    there.set(hash, (there.get(hash) ?? 0) + 1);
  }
  let [kept, gone] = [0, 0];
  for (let line = from; line < to; line++) {
    const left = there.get(lineHash(earlier, line)) ?? 0;
    if (left > 0) {
      there.set(lineHash(earlier, line), left - 1);
      kept += lineBytes(earlier, line);
    } else gone += lineBytes(earlier, line);
  }
  return { kept, gone };
}

function causeOf(earlier: PromptPrint, later: PromptPrint, at: number): PrintedDifference['cause'] {
  const [kind, form] = [kindOf(earlier, at), formOf(earlier, at)];
  const [otherKind, otherForm] = [kindOf(later, at), formOf(later, at)];
  // the model is the first setting
  if (kind === 'setting') return at === 0 ? 'model' : 'template';
  if (kind === 'tool' || otherKind === 'tool') {
    return String(toolHashes(earlier)) === String(toolHashes(later)) ? 'toolOrder' : 'tools';
  }
  if (form === 'thinking' || otherForm === 'thinking') return 'thinking';
  if (form === 'image' && otherForm === 'image') return 'image';
  const follows = (print: PromptPrint, hash: number): boolean => {
    for (let part = at + 1; part < print.parts; part++) if (hashAt(print, part) === hash) return true;
    return false;
  };
  if (follows(earlier, hashAt(later, at))) return 'trimmed';
  return follows(later, hashAt(earlier, at)) ? 'inserted' : 'edited';
}

function toolHashes(print: PromptPrint): number[] {
  const hashes: number[] = [];
  for (let part = 0; part < print.parts; part++) {
    if (kindOf(print, part) === 'tool') hashes.push(hashAt(print, part));
  }
  return hashes.sort((a, b) => a - b);
}
