/**
 * Colours for people: on terminals alone, and not where NO_COLOR says so. Text is written plain everywhere and coloured once,
 * when it is printed, so that a pipe or a file gets the same characters without codes.
 */

import { styleText } from 'node:util';

/** Whether a stream shows colours. */
export function hasColours(
  stream: { readonly isTTY?: boolean },
  env: NodeJS.ProcessEnv = process.env,
): boolean {
  const refuses = env.NO_COLOR !== undefined && env.NO_COLOR !== '';
  return stream.isTTY === true && !refuses && env.TERM !== 'dumb';
}

type Style = Parameters<typeof styleText>[0];

function styled(style: Style, text: string): string {
  return styleText(style, text, { validateStream: false });
}

/** Borders of a table recede, its titles stand out. */
function tableLine(line: string, isTitle: boolean): string {
  if (/^[┌├└]/.test(line)) return styled('dim', line);
  return line
    .split('│')
    .map((cell) => (isTitle && cell.trim() !== '' ? styled('bold', cell) : cell))
    .join(styled('dim', '│'));
}

/** The text as a terminal shows it: titles of tables, warnings and errors stand out. */
export function coloured(text: string): string {
  let before = '';
  return text
    .split('\n')
    .map((line) => {
      const isTitle = before.startsWith('┌');
      before = line;
      if (/^[┌├└│]/.test(line)) return tableLine(line, isTitle);
      if (/^(tierkv: )?warning: /.test(line)) return styled('yellow', line);
      return /^tierkv: .*\[TKV_\w+\]$/.test(line) ? styled('red', line) : line;
    })
    .join('\n');
}
