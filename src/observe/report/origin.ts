/** Where a result comes from: the command that gives it again, and the versions that determine it. */

import { packageVersion } from '../../packageFiles.ts';
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

/** The words of a command line as a shell takes them. @param words as the process got them */
export function commandText(words: readonly string[]): string {
  return [
    'tierkv',
    ...words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)),
  ].join(' ');
}
