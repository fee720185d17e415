/** Runs `tierkv simulate` in this process, and gives what it printed. */

import { simulateCommand } from '../../../src/cli/simulate/command.ts';

export async function printed(...args: string[]): Promise<string> {
  const { write } = process.stdout;
  let out = '';
  process.stdout.write = (text: string | Uint8Array): boolean => {
    out += String(text);
    return true;
  };
  const command = simulateCommand()
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  try {
    await command.parseAsync(args, { from: 'user' });
  } finally {
    process.stdout.write = write;
  }
  return out;
}
