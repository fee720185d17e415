import { latencyCommand } from '../../../src/cli/latency/command.ts';
import { printedBy } from '../printed.ts';

/** What `tierkv latency` prints. */
export const printed = (...args: string[]): Promise<string> => printedBy(latencyCommand(), ...args);
