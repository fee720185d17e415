/** Requests of the wire, checked field by field. */

import { configError } from '../../runtime/errors.ts';
import { unknownName } from '../../sim/control/index.ts';
import { type PolicySlot, policySlots } from '../bundle/index.ts';
import type { SuiteName } from '../fitness/evaluation.ts';

/** A number, a text, or null: what tells a client which of its requests is answered. */
export type RequestId = number | string | null;

const methods = ['evaluate', 'validate', 'describe', 'baseline', 'cancel', 'status', 'shutdown'] as const;
/** The hidden suite is for the final judgement; frameworks do not get at it. */
const suites: readonly SuiteName[] = ['train', 'validation'];

export type Method = (typeof methods)[number];
export type Params = Readonly<Record<string, unknown>>;

export function idOf(request: unknown): RequestId {
  if (typeof request !== 'object' || request === null || !('id' in request)) return null;
  const { id } = request;
  return typeof id === 'number' || typeof id === 'string' ? id : null;
}

export function checked(request: unknown): { method: Method; params: Params } {
  if (typeof request !== 'object' || request === null || Array.isArray(request)) {
    throw configError('request', 'is no object', 'Send {"id", "method", "params"}.');
  }
  const { method, params = {} } = request as { method?: unknown; params?: unknown };
  const known = methods.find((name) => name === method);
  if (known === undefined) throw unknownName('method', String(method), methods);
  if (typeof params !== 'object' || params === null || Array.isArray(params)) {
    throw configError('params', 'is no object', 'Send one, or leave it out.');
  }
  return { method: known, params: params as Params };
}

export function suiteOf(value: unknown): SuiteName {
  if (value === undefined) return 'train';
  const suite = suites.find((name) => name === value);
  if (suite === undefined) throw unknownName('params.suite', String(value), suites);
  return suite;
}

/** @param known ids of the suite's cases */
export function casesOf(value: unknown, known: readonly string[]): readonly unknown[] | undefined {
  if (value === undefined) return value;
  if (!Array.isArray(value) || value.length === 0) {
    throw configError('params.cases', 'is no list of ids', 'Give it ids of cases, or leave it out.');
  }
  for (const id of value) {
    if (!known.includes(id)) throw unknownName('params.cases', String(id), known);
  }
  return value;
}

export function wallMsOf(limits: unknown): number | undefined {
  if (typeof limits !== 'object' || limits === null || !('wallMs' in limits)) return undefined;
  const { wallMs } = limits;
  if (typeof wallMs === 'number' && wallMs >= 1 && wallMs <= 86_400_000) return wallMs;
  throw configError('params.limits.wallMs', `is ${String(wallMs)}`, 'Give it from 1 to 86400000 ms.');
}

export function slotsOf(value: unknown): readonly PolicySlot[] {
  if (value === undefined) return policySlots;
  if (!Array.isArray(value)) throw configError('params.slots', 'is no list', 'Give it names of slots.');
  return value.map((each) => {
    const slot = policySlots.find((name) => name === each);
    if (slot === undefined) throw unknownName('params.slots', String(each), policySlots);
    return slot;
  });
}
