/**
 * Text out of files, for a terminal. Names in traces, specs and profiles may hold line ends and terminal
 * codes, which would move the cursor, hide a line or change the window's title.
 */

/** The text with a question mark for everything that is no visible character or space. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?');
}
