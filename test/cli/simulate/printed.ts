import { simulateCommand } from '../../../src/cli/simulate/command.ts';
import { printedBy } from '../printed.ts';

/** What `tierkv simulate` prints. */
export const printed = (...args: string[]): Promise<string> => printedBy(simulateCommand(), ...args);
