/**
 * A process in which resident memory says what is in use. V8's young generation is small: else it is up to a
 * hundred mebibytes that are touched little by little. And there is one malloc arena: a software device
 * brings threads that go with it, glibc gives each new thread an arena, up to eight a core, and an arena
 * keeps what was freed in it, so that memory creeps while devices come and go. Where MALLOC_ARENA_MAX is set,
 * the process is taken as it is.
 */

import { runAttached } from '../attachedProcess.ts';

const ARENAS = 'MALLOC_ARENA_MAX';
const YOUNG_GENERATION = '--max-semi-space-size=4';

/**
 * Runs the program again in such a process.
 * @param program `import.meta.filename` of it @param flags of node, beside those
 * @returns its exit status; undefined where this process is one
 */
export async function inOwnProcess(
  program: string,
  flags: readonly string[] = [],
): Promise<number | undefined> {
  if (process.platform !== 'linux' || process.env[ARENAS] !== undefined) return undefined;
  const args = [...process.execArgv, YOUNG_GENERATION, ...flags, program, ...process.argv.slice(2)];
  return runAttached(args, { env: { ...process.env, [ARENAS]: '1' } });
}
