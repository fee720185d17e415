import { expect, it } from 'vitest';
import { printable, renderTable } from '../../../src/io/printing/text.ts';

const hostile = 'a\u{1b}]0;title\u{7}b\r\nc\u{9b}31m\u{2028}d\u{202e}e';

it('control, format and line characters become question marks', () => {
  expect(printable(hostile)).toBe('a?]0;title?b??c?31m?d?e');
  expect(printable('Tenant «ä» 中 🙂 x y')).toBe('Tenant «ä» 中 🙂 x y');
});

it('a table keeps one line a row, however long and odd its cells are', () => {
  const text = renderTable([{ title: 'tenant' }], [[hostile], ['x'.repeat(1e6)], ['plain']]);
  expect(text.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u);
  expect(
    text.split('\n').filter((line) => line.includes('plain') || line.includes('title?b??c')),
  ).toHaveLength(2);
  expect(text.length).toBeLessThan(10_000);
});
