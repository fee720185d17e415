/**
 * How a command's failure ends the process. What the user can mend is one line on stderr and exit code 2,
 * never a stack; a fault of ours says so and exits with 1; a stop from outside exits as shells expect.
 * TIERKV_DEBUG=1 adds the stack.
 */

import { CommanderError } from 'commander';
import { TierKVError } from '../../runtime/errors.ts';
import { printable } from '../output/printable.ts';
import { Interrupted } from './interrupt.ts';

export interface Ending {
  readonly exitCode: number;
  /** For stderr, without a newline at its end; empty for nothing to say. */
  readonly text: string;
}

/** Longest message. Of a longer one the beginning and the end stay: what is wrong, and what to do. */
const maxCharacters = 2000;

/**
 * One line whatever the message holds: file names and trace lines may carry line ends, terminal codes and any
 * length.
 */
function oneLine(message: string): string {
  const half = maxCharacters / 2;
  const short =
    message.length <= maxCharacters ? message : `${message.slice(0, half)} ... ${message.slice(-half)}`;
  return printable(short.replace(/\s+/g, ' ')).trim();
}

/** The command that refused its arguments, where it is known better than by the caller. */
function callOf(error: CommanderError): string | undefined {
  return 'call' in error && typeof error.call === 'string' ? error.call : undefined;
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error && 'errno' in error;
}

/** @param help the command whose `--help` shows the way: `tierkv replay`. */
export function endingOf(error: unknown, help: string): Ending {
  // what failed first says more than what could not be closed after it; Node 22 has no class for the pair
  if (error instanceof Error && error.name === 'SuppressedError' && 'suppressed' in error)
    return endingOf(error.suppressed, help);
  if (error instanceof Interrupted) return { exitCode: error.exitCode, text: `tierkv: ${error.message}` };
  if (error instanceof TierKVError) {
    return { exitCode: 2, text: `tierkv: ${oneLine(error.message)} [${error.code}]` };
  }
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return { exitCode: 0, text: '' }; // --help, --version
    const said =
      error.code === 'commander.help' ? 'name one of the commands' : error.message.replace(/^error: /, '');
    const message = oneLine(said).replace(/\.$/, '');
    return { exitCode: 2, text: `tierkv: ${message}. See ${callOf(error) ?? help} --help.` };
  }
  if (isSystemError(error)) {
    return { exitCode: 2, text: `tierkv: the system refused: ${oneLine(error.message)} [TKV_IO]` };
  }
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return {
    exitCode: 1,
    text:
      `tierkv: unexpected ${oneLine(message)}\n` +
      'This is a fault in tierkv, not in what you asked for. TIERKV_DEBUG=1 shows where; please ' +
      'report it with that.',
  };
}

export function withStack(ending: Ending, error: unknown): Ending {
  if (ending.text === '' || !(error instanceof Error) || error.stack === undefined) return ending;
  const cause = error.cause instanceof Error ? `\ncaused by ${error.cause.stack}` : '';
  return { ...ending, text: `${ending.text}\n${error.stack}${cause}` };
}
