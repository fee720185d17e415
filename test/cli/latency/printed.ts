/** `tierkv latency` called in this process. */

import { vi } from 'vitest';
import { latencyCommand } from '../../../src/cli/latency/command.ts';

/** What the command prints to stdout. Rejects as the command does. */
export async function printed(...args: string[]): Promise<string> {
  let out = '';
  const spy = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
  try {
    const command = latencyCommand();
    for (const one of [command, ...command.commands])
      one.exitOverride().configureOutput({ writeErr: () => {} });
    await command.parseAsync(args, { from: 'user' });
  } finally {
    spy.mockRestore();
  }
  return out;
}
