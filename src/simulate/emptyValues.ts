/** An option or argument that is given and empty: mostly a variable of the shell that was not set. */

import type { Command } from 'commander';
import { configError } from '../runtime/errors.ts';

/** @throws TKV_CONFIG naming the first that is empty */
export function refuseEmptyValues(command: Command): void {
  for (const [i, argument] of command.registeredArguments.entries()) {
    if (!argument.variadic && isEmpty(command.processedArgs[i])) {
      throw configError(
        argument.name(),
        'is empty',
        argument.required ? 'Name one.' : 'Name one, or leave it out.',
      );
    }
  }
  for (const option of command.options) {
    const name = option.attributeName();
    if (command.getOptionValueSource(name) !== 'cli' || !isEmpty(command.getOptionValue(name))) continue;
    throw configError(option.long ?? option.flags, 'is empty', 'Give it a value, or leave it out.');
  }
}

function isEmpty(value: unknown): boolean {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.some((each) => typeof each === 'string' && each.trim() === '');
}
