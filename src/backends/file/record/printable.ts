/**
 * Texts out of files, such as a model's name, for people: a file from elsewhere must not command their
 * terminal.
 */

/** The text with control and format characters, line ends among them, as `\u{1b}`. */
export function printable(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}
