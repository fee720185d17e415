/**
 * A template's text to tokens, as Jinja does it with `trim_blocks` and `lstrip_blocks`, which transformers sets:
 * line ends become `\n`, one at the end goes, white space beside tags goes by the signs `-` and `+`.
 */

import { JinjaError } from './values.ts';

export interface Token {
  readonly kind: 'data' | 'open' | 'close' | 'name' | 'text' | 'int' | 'float' | 'operator' | 'end';
  readonly value: string;
}

const operators = '// ** == != >= <= > < = + - / * % ~ [ ] ( ) { } . : | , ;'.split(' ');
const pairs: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };
const float = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/y;
const integer = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/y;
const name = /[\p{L}\p{N}_]+/uy;
const string = /'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"/y;
const closes = { '{%': /\+%\}|-%\}\s*|%\}\n?/y, '{{': /-\}\}\s*|\}\}/y } as const;
const commentEnd = /\+#\}|-#\}\s*|#\}\n?/g;
const rawBegin = /\{%[-+]?\s*raw\s*(?:-%\}\s*|%\})/y;
const rawEnd = /\{%([-+]?)\s*endraw\s*(?:\+%\}|-%\}\s*|%\}\n?)/g;

export function tokenize(template: string): Token[] {
  const source = template.replace(/\r\n?/g, '\n').replace(/\n$/, '');
  const tokens: Token[] = [];
  let at = 0;
  /** Whether what was taken last ended a line. */
  let startsLine = true;
  const match = (expression: RegExp): RegExpExecArray | null => {
    expression.lastIndex = at;
    return expression.exec(source);
  };
  const data = (text: string, sign: string, isVariable: boolean): void => {
    let kept = text;
    if (sign === '-') kept = text.trimEnd();
    else if (sign !== '+' && !isVariable) {
      const line = text.lastIndexOf('\n') + 1;
      if ((line > 0 || startsLine) && /^\s+$/.test(text.slice(line))) kept = text.slice(0, line);
    }
    if (kept !== '') tokens.push({ kind: 'data', value: kept });
  };
  while (at < source.length) {
    const found = /\{[{%#]/.exec(source.slice(at));
    if (found === null) {
      tokens.push({ kind: 'data', value: source.slice(at) });
      break;
    }
    const text = source.slice(at, at + found.index);
    at += found.index;
    const open = found[0];
    const raw = match(rawBegin);
    const sign = source[at + 2] === '-' || source[at + 2] === '+' ? source[at + 2] : '';
    data(text, sign, open === '{{');
    if (raw !== null) {
      at += raw[0].length;
      startsLine = raw[0].endsWith('\n');
      if (at === source.length) break;
      const end = match(rawEnd);
      if (end === null) throw new JinjaError('Missing end of raw directive');
      data(source.slice(at, end.index), end[1], false);
      at = end.index + end[0].length;
      startsLine = end[0].endsWith('\n');
    } else if (open === '{#') {
      at += 2;
      const end = match(commentEnd);
      if (end === null) throw new JinjaError('Missing end of comment tag');
      at = end.index + end[0].length;
      startsLine = end[0].endsWith('\n');
    } else {
      tokens.push({ kind: 'open', value: open });
      at += 2 + sign.length;
      const close = closes[open as keyof typeof closes];
      const end = tag(close);
      tokens.push({ kind: 'close', value: open === '{{' ? '}}' : '%}' });
      startsLine = end.endsWith('\n');
    }
  }
  return [...tokens, { kind: 'end', value: '' }];

  /** @returns what closed the tag */
  function tag(close: RegExp): string {
    const brackets: string[] = [];
    for (;;) {
      at += match(/\s*/y)?.[0].length ?? 0;
      if (at >= source.length) throw new JinjaError('unexpected end of template');
      const end = brackets.length === 0 ? match(close) : null;
      if (end !== null) {
        at += end[0].length;
        return end[0];
      }
      const number = source[at - 1] === '.' ? null : match(float);
      const whole = number ?? match(integer);
      const word = whole ?? match(name);
      const found = word ?? match(string);
      const operator = found === null ? operators.find((each) => source.startsWith(each, at)) : undefined;
      const value = found?.[0] ?? operator;
      if (value === undefined) throw new JinjaError(`unexpected char ${JSON.stringify(source[at])} at ${at}`);
      at += value.length;
      if (number !== null) tokens.push({ kind: 'float', value: value.replaceAll('_', '') });
      else if (whole !== null) tokens.push({ kind: 'int', value: value.replaceAll('_', '') });
      else if (word !== null) tokens.push({ kind: 'name', value });
      else if (found !== null) tokens.push({ kind: 'text', value: unescaped(value.slice(1, -1)) });
      else {
        if (Object.hasOwn(pairs, value)) brackets.push(pairs[value]);
        else if (')]}'.includes(value) && brackets.pop() !== value)
          throw new JinjaError(`unexpected '${value}'`);
        tokens.push({ kind: 'operator', value });
      }
    }
  }
}

const named: Readonly<Record<string, string>> = {
  '\n': '',
  '\\': '\\',
  "'": "'",
  '"': '"',
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/** Python's escapes; an unknown one stays as it is. */
function unescaped(text: string): string {
  return text.replace(
    /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([\s\S]))/g,
    (whole, x?: string, u?: string, long?: string, octal?: string, one?: string) => {
      if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
      const hex = x ?? u ?? long;
      if (hex !== undefined) {
        const code = Number.parseInt(hex, 16);
        if (code > 0x10ffff) throw new JinjaError(`illegal Unicode character in ${whole}`);
        return String.fromCodePoint(code);
      }
      if (one === 'x' || one === 'u' || one === 'U')
        throw new JinjaError(`truncated escape in ${JSON.stringify(text)}`);
      return one !== undefined && Object.hasOwn(named, one) ? named[one] : whole;
    },
  );
}
