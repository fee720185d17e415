/** The kind of the error that a policy's call ends in, or what it ended in instead. */

import { PolicyError } from '../../../src/policy/sandbox/program.ts';

export function thrownKind(call: () => unknown): string {
  try {
    return `returned ${String(call())}`;
  } catch (error) {
    if (error instanceof PolicyError) return error.kind;
    throw error;
  }
}
