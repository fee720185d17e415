/** A command of `tierkv` called in this process. */

import type { Command } from 'commander';
import { vi } from 'vitest';

/** What the command prints to stdout. Rejects as the command does; the exit code stays as it was. */
export async function printedBy(command: Command, ...args: string[]): Promise<string> {
  let out = '';
  const spy = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
  const before = process.exitCode;
  try {
    for (const one of [command, ...command.commands])
      one.exitOverride().configureOutput({ writeErr: () => {} });
    await command.parseAsync(args, { from: 'user' });
  } finally {
    spy.mockRestore();
    process.exitCode = before;
  }
  return out;
}
