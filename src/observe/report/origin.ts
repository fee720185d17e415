/** Where a result comes from: the command that gives it again, and the versions that determine it. */

import { packageVersion } from '../../packageFiles.ts';
import { outputFlag as flagOfName } from '../../sim/description/readers.ts';
import type { ReportOrigin } from './model.ts';

/** @param command as it was typed @param facts model, seed, ...: what is empty is left out */
export function originOf(command: string, facts: Readonly<Record<string, string>> = {}): ReportOrigin {
  return {
    command,
    versions: {
      tierkv: packageVersion(),
      node: process.versions.node,
      system: `${process.platform} ${process.arch}`,
    },
    facts: Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== '')),
  };
}

/** A setting in the words of a report's reader: an option, where the result came by a command. */
export function settingIn(command: string, field: string): string {
  return command.startsWith(`${program} `) ? flagOfName(field) : field;
}

const program = 'tierkv';

/** The words of a command line as a shell takes them. @param words as the process got them */
export function commandText(words: readonly string[]): string {
  return [
    program,
    ...words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)),
  ].join(' ');
}
