/** Errors of a running program: a kind, a line, and what to change. */

import { PolicyError } from '../policyError.ts';

/** @throws PolicyError policy_runtime, always */
export function fail(line: number, problem: string): never {
  throw new PolicyError('policy_runtime', problem, { line });
}
